"""``bnp-models conditions``: structural zeros suggested from a sample, and checked against it."""

import re
import shlex

from bnp_models.cli.commands import Check, Suggest
from bnp_models.cli.folder import reading_of, say, shows_progress, variables_of
from bnp_models.cli.options import UsageError
from bnp_models.cli.parts import Data, Output
from bnp_models.cli.samples import recoded, with_empty_levels
from bnp_models.data.folders import read_records
from bnp_models.data.messages import in_quotes
from bnp_models.data.microdata import Records
from bnp_models.data.writing import write_frame
from bnp_models.zeros.structural_zeros import read_conditions
from bnp_models.zeros.suggestions import settling_variables, suggest_conditions


def suggest(command: Suggest) -> int:
    """``bnp-models conditions suggest``: write candidates, say how many."""
    table = _read(command.data, command.output)
    output = command.output
    frame = suggest_conditions(table, command.least, progress=shows_progress(output))
    write_frame(frame, output.folder)
    say(
        output,
        f"{len(frame)} candidates, each of which a person has to confirm: in {output.folder}, "
        "remove the ? if the combination is impossible, and remove the row if the combination is "
        "only rare",
    )
    for by, of in settling_variables(table, command.least):
        pair = shlex.quote("=".join(_as_name(name) for name in (by, of)))
        say(
            output,
            f"{by} determines {of}: the option --settles {pair} can replace the candidates for "
            "these two variables",
        )
    return 0


def _as_name(name: str) -> str:
    """A name as --settles takes it."""
    return in_quotes(name) if re.search('[="]', name) else name


def check(command: Check) -> int:
    """``bnp-models conditions check``: write the records that are impossible, say how many."""
    table = _read(command.data, command.output)
    assert command.data.conditions is not None
    frame = read_conditions(command.data.conditions, table.schema).impossible_records(table)
    write_frame(frame, command.output.folder)
    say(command.output, f"{len(frame)} records are impossible: {command.output.folder}")
    return 0


def _read(data: Data, output: Output) -> Records:
    """The sample, recoded, once the file to be written can be."""
    table = read_records(data.sample, variables_of(data), data.levels, reading_of(data))
    table, _ = recoded(data, with_empty_levels(data, table))
    out = output.folder
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"--out {out}: name a file in a folder that exists")
    if out.exists() and not output.force:
        raise UsageError(f"--out {out}: exists; name another file, or say --force to replace it")
    return table
