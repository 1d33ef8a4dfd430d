"""``bnp-models conditions``: structural zeros suggested from a sample, and checked against it."""

import dataclasses
import re
import shlex
from pathlib import Path

from bnp_models.cli.commands import Check, Suggest
from bnp_models.cli.folder import reading_of, say, shows_progress, variables_of
from bnp_models.cli.options import UsageError
from bnp_models.cli.samples import recoded, with_empty_levels
from bnp_models.data.display import counted
from bnp_models.data.folders import read_records
from bnp_models.data.messages import in_quotes
from bnp_models.data.microdata import Records
from bnp_models.data.reading import read_frame
from bnp_models.data.stata_spss import read_labelling
from bnp_models.data.writing import write_frame
from bnp_models.zeros.structural_zeros import read_conditions
from bnp_models.zeros.suggestions import settling_variables, suggest_conditions


def suggest(command: Suggest) -> int:
    """``bnp-models conditions suggest``: write candidates, say how many."""
    table = _read(command)
    output = command.output
    frame = suggest_conditions(table, command.least, progress=shows_progress(output))
    write_frame(frame, output.folder)
    if len(frame):
        say(
            output,
            f"{counted(len(frame), 'candidate')}, each of which a person has to confirm: in "
            f"{output.folder}, remove the ? if the combination is impossible, and remove the row "
            "if the combination is only rare",
        )
    else:
        say(
            output,
            "0 candidates: no combination is missing of which chance alone would give "
            f"{command.least:g} records; {output.folder} has none",
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
    data, output = command.data, command.output
    if command.possible is not None:
        if data.sample.is_folder:
            raise UsageError("--possible: cannot be used if SAMPLE is a folder; leave it out")
        _check_file("--possible", Path(command.possible), command)
        if Path(command.possible).absolute() == output.folder.absolute():
            raise UsageError("--possible: is the file of --out; name another file")
    table = _read(command)
    assert data.conditions is not None
    frame = read_conditions(data.conditions, table.schema).impossible_records(table)
    write_frame(frame, output.folder)
    number = counted(len(frame), "record")
    is_impossible = "is" if len(frame) == 1 else "are"
    say(output, f"{number} {is_impossible} impossible: {output.folder}")
    if command.possible is not None:
        # All columns, with the labels of missing values as they are.
        as_found = dataclasses.replace(reading_of(data), missing=(), missing_of=(), normalise=False)
        records, _ = read_frame(data.sample, None, as_found)
        kept = records.drop(index=frame["row"].tolist())
        write_frame(kept, command.possible, read_labelling(data.sample), private=True)
        say(
            output,
            f"{len(frame):,} of {counted(len(records), 'record')} left out; the other "
            f"{len(kept):,} are in {command.possible}",
        )
    return 0


def _read(command: Suggest | Check) -> Records:
    """The sample, recoded, once the file to be written can be."""
    data = command.data
    table = read_records(data.sample, variables_of(data), data.levels, reading_of(data))
    # As by default in the commands that sample: codes such as -1 are in no range of ages.
    table, _ = recoded(data, with_empty_levels(data, table), by_order=True)
    _check_file("--out", command.output.folder, command)
    return table


def _check_file(option: str, file: Path, command: Suggest | Check) -> None:
    """Check that a file can be written, and is none that is read: --force replaces results only."""
    if file.is_dir() or not file.parent.is_dir():
        raise UsageError(f"{option} {file}: name a file in a folder that exists")
    data = command.data
    read = {"SAMPLE": data.sample, "--conditions": data.conditions, "--levels": data.levels}
    for what, given in read.items():
        if given is not None and Path(given).exists() and file.exists() and file.samefile(given):
            raise UsageError(f"{option} {file}: is the file of {what}; name another file")
    if file.exists() and not command.output.force:
        raise UsageError(f"{option} {file}: exists; name another file, or say --force to replace "
                         "it")  # fmt: skip
