"""Try each item of the list as a new user would, before and after the work on it.

    python experiments/quality/new_user/run.py

For each of two revisions: a clone, a clean environment with `pip install '.[formats]'`, and the
commands of `cases.py` in a folder with the same files. Writes table.md, and before.json and
after.json with what came out.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cases import CASES, FIRST, INSTALL, ITEMS, VARIABLES, Case

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SIDES = ("before", "after")


def execute(command: str, folder: Path, environment: dict[str, str], limit: int) -> dict:
    """Run a command of the shell: its exit code, its seconds, and what it said."""
    began = time.perf_counter()
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=limit)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, code = process.communicate()[0], None
    return {"code": code, "seconds": round(time.perf_counter() - began, 1), "said": said}


def shown(case: Case, said: str, folder: Path) -> str:
    """The last lines, without paths of this machine."""
    said = said.replace(f"{folder}/", "").replace(str(Path.home()), "~")
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", said)]
    # pip says which of its indexes it lacks.
    lines = [line for line in lines if line.strip() and not line.startswith("WARNING: Location")]
    if not case.warnings:
        lines = [line for line in lines if not line.startswith("warning: ")]
    text = "\n".join(lines[-case.lines :])
    return text if len(text) <= case.characters else "… " + text[-case.characters :]


def prepare(revision: str, folder: Path, limit: int) -> dict:
    """Clone and install a revision: the row of the installation."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "clone", ignore_errors=True)
    subprocess.run(["git", "clone", "-q", ROOT, folder / "clone"], check=True)
    subprocess.run(["git", "-C", folder / "clone", "checkout", "-q", revision], check=True)
    if not (folder / "venv").exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    return outcome(INSTALL, folder, limit)


def outcome(case: Case, folder: Path, limit: int) -> dict:
    """Row of one command in the environment of a folder."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"{folder / 'venv/bin'}:{environment['PATH']}"
    # As on a new machine: no program is compiled yet.
    environment |= VARIABLES | {"XDG_CACHE_HOME": str(folder / "cache")}
    done = execute(case.command, folder / case.where, environment, limit)
    print(case.item, done["code"], f"{done['seconds']} s", case.command[:90], flush=True)
    return case._asdict() | done | {"said": shown(case, done["said"], folder)}


def main(options: argparse.Namespace, work: Path) -> None:
    """Both sides, and the table."""
    wanted = [case for case in CASES if options.only in (None, case.item)]
    # Excel files can be written on the later side only: it is made first.
    for side, revision in (("after", options.after), ("before", options.before)):
        print(side, flush=True)
        installed = prepare(revision, work / side, options.limit)
        if side == "after":
            shutil.rmtree(work / "inputs", ignore_errors=True)
            (work / "inputs").mkdir()
            python = work / "after/venv/bin/python"
            command = [python, HERE / "scripts/inputs.py", work / "inputs"]
            subprocess.run(command, check=True)
        scratch = work / side / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(HERE / "scripts", scratch, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(work / "inputs", scratch, dirs_exist_ok=True)
        commit = ["git", "-C", work / side / "clone", "rev-parse", "--short", "HEAD"]
        at = subprocess.run(commit, check=True, capture_output=True, text=True).stdout.strip()
        # Of an item that is tried again, the rows come in the place of its earlier ones.
        file, rows = HERE / f"{side}.json", []
        earlier = json.loads(file.read_text()) if options.only is not None else []
        for case in [None, *FIRST, *wanted]:
            row = installed if case is None else outcome(case, work / side, options.limit)
            if options.only in (None, row["item"]):
                rows.append({"revision": at} | row)
            kept = [row for row in earlier if row["item"] != options.only]
            text = json.dumps(sorted(rows + kept, key=lambda row: row["item"]), indent=1)
            file.write_text(text + "\n")
    (HERE / "table.md").write_text(page())


def page() -> str:
    """The tables, of the two files of rows."""
    rows = {side: json.loads((HERE / f"{side}.json").read_text()) for side in SIDES}
    revisions = {side: sorted({row["revision"] for row in of}) for side, of in rows.items()}
    lines = ["# Each item, tried before and after", ""]
    lines.append(
        f"Before: {', '.join(revisions['before'])}. Now: {', '.join(revisions['after'])}. `$N` is "
        f"`{VARIABLES['N']}`, `$SMALL` is `{VARIABLES['SMALL']}`."
    )
    return "\n".join([*lines, *sections(rows)]) + "\n"


def cell(row: dict) -> str:
    """Exit code and what was said, for a cell of Markdown."""
    code = f"no end within {row['seconds']:.0f} s" if row["code"] is None else f"exit {row['code']}"
    said = row["said"].replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    said = said.replace("`", "&#96;").replace("*", "&#42;").replace("_", "&#95;")
    # No link: what looks like one points nowhere.
    said = said.replace("](", "]&#40;")
    return f"*{code}*<br>" + "<br>".join(said.splitlines())


def sections(rows: dict[str, list[dict]]) -> list[str]:
    """Lines of a table for each item."""
    lines = []
    found = {side: {row["command"]: cell(row) for row in of} for side, of in rows.items()}
    for item, name in ITEMS.items():
        lines += ["", f"## {item}. {name}", "", "| command | before | now |", "|---|---|---|"]
        for case in [INSTALL, *FIRST, *CASES]:
            if case.item == item:
                before, now = (found[side].get(case.command, "not run") for side in SIDES)
                command = case.command.replace("|", "\\|")
                lines.append(f"| `{command}` | {before} | {now} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="1141674", help="revision (default: %(default)s)")
    parser.add_argument("--after", default="HEAD", help="revision (default: %(default)s)")
    parser.add_argument(
        "--only", type=int, metavar="ITEM", help="try one item again, and put it into the tables"
    )
    parser.add_argument("--limit", type=int, default=300, help="seconds of one command at the most")
    # Jobs in the background of a shell ignore SIGINT, and so would the commands.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser.add_argument("--work", type=Path, help="folder that is kept, environments and all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="new-user-") as made:
        main(options, options.work or Path(made))
