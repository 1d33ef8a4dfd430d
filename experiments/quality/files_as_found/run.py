"""Try files as people have them, up to the first sweep of the chains, and write table.md.

    python experiments/quality/files_as_found/run.py CASES

CASES is the folder of the input files, which are not part of this repository.
"""

import argparse
import contextlib
import io
import os
import shlex
import sys
import tempfile
from pathlib import Path

from cases import BEGINS, CASES, Case

from bnp_models.cli import runs
from bnp_models.cli.main import main

HERE = Path(__file__).parent
ENDS = {0: "done", 2: "refused", 130: BEGINS}


def stop(*_, **__):
    """Take the place of the chains."""
    raise KeyboardInterrupt


def tried(case: Case, out: Path) -> tuple[str, list[str]]:
    """How a command ended, and the lines that it said before."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main([*shlex.split(case.command), "--out", str(out)])
    lines = [line.removeprefix("bnp-models: ") for line in said.getvalue().splitlines()]
    return ENDS[code], [line for line in lines if not line.startswith("interrupted")]


def row(case: Case, ended: str, lines: list[str]) -> str:
    """Row of the table: the line that has what is asked for."""
    line = next((line for line in lines if case.says in line), "") if case.says else ""
    where = line.find(case.says)
    words = line if len(line) <= 200 else f"… {line[max(0, where - 60) : where + 140]} …"
    now = f"{ended}; {words}" if line else ended
    cells = (case.situation, f"`{case.command}`", case.before, now, f"`{case.held}`")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def run() -> int:
    """Try all cases; the exit code is the number of those that came out otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", type=Path)
    runs.sample = stop
    os.chdir(parser.parse_args().cases)
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            ended, lines = tried(case, Path(folder) / str(number))
            rows.append(row(case, ended, lines))
            if ended != case.ends or not any(case.says in line for line in [*lines, ""]):
                wrong += 1
                print(f"otherwise: {case.command}: {ended}", *lines, sep="\n", file=sys.stderr)
    header = "| situation | command | before | now | test |\n|---|---|---|---|---|\n"
    (HERE / "table.md").write_text(
        f"# Files as people have them\n\n{header}" + "\n".join(rows) + "\n", encoding="utf-8"
    )
    print(f"{len(rows) - wrong} of {len(rows)} came out as they have to")
    return wrong


if __name__ == "__main__":
    sys.exit(run())
