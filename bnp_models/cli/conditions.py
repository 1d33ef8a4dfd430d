"""``bnp-models conditions``: structural zeros suggested from a sample, and checked against it."""

import argparse
from pathlib import Path

from bnp_models.cli.folder import UsageError, reading_of, say, shows_progress
from bnp_models.cli.samples import recoded
from bnp_models.data.folders import read_records
from bnp_models.data.writing import write_frame
from bnp_models.zeros.structural_zeros import read_conditions
from bnp_models.zeros.suggestions import suggest_conditions


def conditions(options: argparse.Namespace, argv: list[str]) -> int:
    """``bnp-models conditions suggest`` and ``check``: write a table, say what it holds."""
    table = read_records(options.sample, options.variables, options.levels, reading_of(options))
    table, _ = recoded(options, table)
    out = Path(options.out)
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"--out {out}: name a file in a folder that exists")
    if out.exists() and not options.force:
        raise UsageError(f"--out {out}: exists; name another file, or say --force to replace it")
    if options.action == "suggest":
        frame = suggest_conditions(table, options.least, progress=shows_progress(options))
        write_frame(frame, out)
        say(
            options,
            f"{len(frame)} candidates, each of which somebody has to confirm: in {out}, remove the "
            "? if the combination is impossible, and remove the row if it is only rare",
        )
        return 0
    given = read_conditions(options.conditions, table.schema)
    frame = given.impossible_records(table)
    write_frame(frame, out)
    say(options, f"{len(frame)} records are impossible: {out}")
    return 0
