"""Run the fuzz tests with many examples, and write how many there were and what they found.

python experiments/quality/fuzz/run.py --examples 5000
python experiments/quality/fuzz/run.py --examples 5000 --targets rules zeros
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TABLE = HERE / "results.md"
HEAD = "| target | examples | seconds | failures found |\n|---|---|---|---|\n"

TARGETS = {
    "files": "test_files.py::test_any_files_are_read_or_refused",
    "files of other formats": (
        "test_files.py::test_any_bytes_in_files_of_other_formats_are_read_or_refused"
    ),
    "logs of changes": "test_files.py::test_any_log_of_changes_is_read_or_refused",
    "options": "test_options.py::test_any_options_are_taken_or_refused",
    "files of options": "test_options.py::test_any_file_of_options_is_taken_or_refused",
    "structural zeros": "test_zeros.py::test_every_form_agrees_with_all_cells_enumerated",
    "rules": "test_rules.py::test_statements_mean_what_the_documentation_says",
    "pages, JSON and CSV": "test_outputs.py::test_labels_of_any_text_are_shown_as_they_are",
    "tables for spreadsheets": "test_outputs.py::test_tables_for_spreadsheets_hold_no_formula",
    "whole commands": "test_outputs.py::test_commands_on_labels_of_any_text",
}


def run(test, examples):
    """Run one test; return the examples that it took, the seconds, and the failures it found."""
    environment = os.environ | {"FUZZ_EXAMPLES": str(examples)}
    command = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-show-statistics",
        f"tests/fuzz/{test}",
    ]  # fmt: skip
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - start
    found = re.findall(r"(\d+) passing(?: examples)?, (\d+) failing", done.stdout)
    distinct = re.search(r"found (\d+) distinct", done.stdout)
    failures = int(distinct[1]) if distinct else int(done.returncode != 0)
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if line.startswith("E ")]
        print("\n".join(said) or done.stdout[-6000:], file=sys.stderr)
    return sum(int(passed) + int(failed) for passed, failed in found), seconds, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    options = parser.parse_args()
    rows = {}
    if TABLE.exists():
        lines = TABLE.read_text(encoding="utf-8").splitlines()[2:]
        rows = {line.split(" | ")[0].strip("| "): line for line in lines}
    for name in options.targets:
        examples, seconds, failures = run(TARGETS[name], options.examples)
        rows[name] = f"| {name} | {examples:,} | {seconds:.0f} | {failures} |"
        kept = [rows[name] for name in TARGETS if name in rows]
        TABLE.write_text(HEAD + "\n".join(kept) + "\n", encoding="utf-8")
        print(rows[name], flush=True)


if __name__ == "__main__":
    main()
