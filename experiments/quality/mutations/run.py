"""Plant each error of mutations.toml in a copy of the repository, and see whether its tests fail.

python experiments/quality/mutations/run.py                         # goes on where it stopped
python experiments/quality/mutations/run.py --again                 # all of them once more
python experiments/quality/mutations/run.py --only NAME             # those with this in their name
python experiments/quality/mutations/run.py --file nested --most 8  # eight of those in such files
"""

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LIST = HERE / "mutations.toml"
RESULTS, TABLE = HERE / "results.json", HERE / "results.md"
CACHE = ROOT / "build" / "mutations-xla"
LONGEST = 900


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--file", default="", help="those planted in files with this in their path")
    parser.add_argument("--most", type=int, help="no more than so many this time")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--jobs", type=int, default=1, help="test runs at a time")
    parser.add_argument("--prefix", default="", help="a command before each run of tests: nice")
    options = parser.parse_args()
    mutations = read_mutations()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    chosen = [m for m in mutations if options.only in m["name"] and options.file in m["file"]]
    todo = [m for m in chosen if options.again or not is_done(m, results)][: options.most]
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies = SimpleQueue()
        for i in range(options.jobs):
            copies.put(copy_tree(Path(folder) / str(i)))
        unchanged = Unchanged(todo, results, options.prefix)
        with ThreadPoolExecutor(options.jobs) as pool:
            work = partial(plant, unchanged=unchanged, copies=copies, prefix=options.prefix)
            begun = {pool.submit(work, m): m for m in todo}
            for done in as_completed(begun):
                m, result = begun[done], done.result()
                results[m["name"]] = result
                print(f"{m['name']}: {result['verdict']}: {result['how']}", flush=True)
                save(mutations, results)
    save(mutations, results)
    print(TABLE.read_text().splitlines()[2])
    tried = [m["name"] for m in chosen if m["name"] in results]
    wrong = [name for name in tried if results[name]["verdict"] != "seen"]
    if wrong:
        sys.exit(f"not seen as they should be: {', '.join(wrong)}")


def read_mutations() -> list[dict]:
    """The list, once every text to be changed is found exactly once."""
    mutations = tomllib.loads(LIST.read_text())["mutation"]
    names = [m["name"] for m in mutations]
    faults = [f"{name}: twice in the list" for name in set(names) if names.count(name) > 1]
    for m in mutations:
        times = (ROOT / m["file"]).read_text().count(m["old"])
        if times != 1:
            faults.append(f"{m['name']}: its text is {times} times in {m['file']}")
        if m["old"] == m["new"]:
            faults.append(f"{m['name']}: changes nothing")
    if faults:
        sys.exit("\n".join(faults))
    return mutations


def digest(mutation: dict) -> str:
    """Changes with the mutation and with the file that it is in."""
    text = json.dumps(mutation, sort_keys=True) + (ROOT / mutation["file"]).read_text()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_done(mutation: dict, results: dict) -> bool:
    return results.get(mutation["name"], {}).get("digest") == digest(mutation)


def copy_tree(folder: Path) -> Path:
    """A copy of the files that git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def run_tests(
    folder: Path, tests: list[str], prefix: str, long: bool, stop: bool, longest: float = LONGEST
):
    """Failures of tests as (test, what it says, whether it is an assertion), how many, seconds."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [
        *shlex.split(prefix), sys.executable, "-m", "pytest", *tests, "-n", "0",
        "-p", "no:cacheprovider", f"--junitxml={report}", "-o", "junit_family=xunit1",
    ]  # fmt: skip
    command += ["-x"] if stop else []
    command += [] if long else ["-m", "not long"]
    # No bytecode: a changed file may have the size and the second of the one before.
    environment = os.environ | {
        "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_COMPILATION_CACHE_DIR": str(CACHE), "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=longest
        )
    except subprocess.TimeoutExpired:
        return [("", f"no end within {longest:.0f} seconds", False)], 0, longest
    if not report.exists():
        return [("", (done.stdout + done.stderr)[-160:], False)], 0, 0.0
    root = ElementTree.parse(report).getroot()
    failures, seconds = [], 0.0
    cases = list(root.iter("testcase"))
    for case in cases:
        seconds += float(case.get("time", 0))
        for fault in [*case.findall("failure"), *case.findall("error")]:
            failures.append((case.get("name"), *read_fault(fault)))
    if not cases and not failures:
        failures.append(("", "no test was collected", False))
    return failures, len(cases), seconds


def read_fault(fault) -> tuple[str, bool]:
    """What a failure says in a line, and whether it is that of an assertion in a test."""
    message = fault.get("message") or ""
    asserted = message.startswith(("AssertionError", "assert ", "Failed: DID NOT RAISE"))
    if fault.tag == "error":
        return f"before the test: {message}", False
    lines = [line[1:].strip() for line in (fault.text or "").splitlines() if line[:2] == "E "]
    said = [line.removeprefix("AssertionError:").strip() for line in lines]
    compared = [line for line in said if line.startswith("assert ")]
    return "; ".join(compared[:1] or list(filter(None, said))[:3]) or message, asserted


class Unchanged:
    """Whether tests pass where nothing is changed: asked once, all that are wanted of a file."""

    def __init__(self, todo: list[dict], results: dict, prefix: str):
        self.known, self.prefix = results.setdefault("", {}), prefix
        self.locks: dict[tuple[str, bool], Lock] = defaultdict(Lock)
        self.source = source_digest()
        self.wanted = {(test, m.get("long", False)) for m in todo for test in m["tests"]}

    def faults(self, mutation: dict, folder: Path) -> list:
        """What the tests of a mutation say in a copy without any change."""
        faults, long = [], mutation.get("long", False)
        for file in dict.fromkeys(test.split("::")[0] for test in mutation["tests"]):
            with self.locks[file, long]:
                faults += self._of_file(file, long, folder)
        return faults

    def _of_file(self, file, long, folder) -> list:
        text = "\0".join([file, (ROOT / file).read_text(), self.source])
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        here = {test for test, x in self.wanted if x == long and test.split("::")[0] == file}
        tests = sorted(test for test in here if self.known.get(test) != key)
        if not tests:
            return []
        failures, number, seconds = run_tests(folder, tests, self.prefix, long, stop=False)
        if number < len(tests):
            failures = [*failures, ("", f"{number} of {tests} ran")]
        if not failures:
            self.known.update(dict.fromkeys(tests, key))
        print(f"{file}: {number} tests without a change, {seconds:.0f} s", flush=True)
        return failures


def source_digest() -> str:
    """Of the package and the kernels."""
    files = sorted([*(ROOT / "bnp_models").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def plant(mutation: dict, unchanged: Unchanged, copies: SimpleQueue, prefix: str) -> dict:
    """Whether the tests of one mutation see it, and how."""
    folder, long = copies.get(), mutation.get("long", False)
    file = folder / mutation["file"]
    text, result = file.read_text(), {"digest": digest(mutation), "seconds": 0, "test": ""}
    try:
        if faults := unchanged.faults(mutation, folder):
            return result | {"digest": "", "verdict": "fails without it", "how": str(faults[0])}
        begun = time.time()
        file.write_text(text.replace(mutation["old"], mutation["new"]))
        failures, _, _ = run_tests(folder, mutation["tests"], prefix, long, stop=True)
    finally:
        file.write_text(text)
        copies.put(folder)
    result["seconds"] = round(time.time() - begun)
    if not failures:
        return result | {"verdict": "not seen", "how": "all tests passed"}
    test, how, asserted = failures[0]
    verdict = "seen" if asserted else "failed otherwise"
    return result | {"verdict": verdict, "test": test, "how": how[:160]}


def save(mutations: list[dict], results: dict):
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    rows = [(m, results[m["name"]]) for m in mutations if m["name"] in results]
    seen = sum(r["verdict"] == "seen" for _, r in rows)
    lines = [
        "# Planted errors, and the tests that detect them", "",
        f"{len(mutations)} errors; {seen} detected by an assertion, {len(rows) - seen} not, "
        f"{len(mutations) - len(rows)} not tried.", "",
        "| name | where | what was changed | detected by | how it failed | seconds |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for m, r in rows:
        file = next((t.split("::")[0] for t in m["tests"] if r["test"].split("[")[0] in t), "")
        test = f"{file.removeprefix('tests/')} {r['test']}" if r["test"] else "**nothing**"
        long = " (long)" if m.get("long") else ""
        how = r["how"] if r["verdict"] == "seen" else f"**{r['verdict']}**: {r['how']}"
        cells = [m["name"], m["file"], m["what"], test + long, f"`{how}`", str(r["seconds"])]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
