"""Input and options of commands, checked before any work is done."""

import argparse
import re
from typing import Any, NamedTuple

from bnp_models.cli.folder import UsageError, located
from bnp_models.cli.models import (
    CELL_MODELS,
    HOUSEHOLD_MODELS,
    MODELS,
    MODELS_OF,
    counts_cells,
)
from bnp_models.cli.parser import (
    DEFAULT_MINUTES,
    DRAWS,
    MAX_MINUTES,
    STOPPING,
    UNTIL_RHAT,
    flag,
)
from bnp_models.cli.samples import Changes, read_household_sample, read_sample
from bnp_models.data.households import Households, persons_of
from bnp_models.data.messages import listed
from bnp_models.data.microdata import Records
from bnp_models.data.stata_spss import FormatError, names_in_file
from bnp_models.inference.settings import Settings
from bnp_models.models.model import Model

CELL_OPTIONS = ("cells", "hyperparameters")

# Options of the models of persons within households.
HOUSEHOLD_OPTIONS = ("household", "household_variables", "rules", "roles", "head")

MODEL_OPTIONS = tuple(dict.fromkeys(name for model in MODELS.values() for name in model.options))


class Inputs(NamedTuple):
    """Input of a command that samples."""

    model: Model
    table: Records | Households
    conditions: Any
    """`StructuralZeros` or `Rules`; None where there are none."""
    changes: Changes
    """What became of the sample's levels."""


def checked_input(options: argparse.Namespace) -> Inputs:
    """Model, coded sample and conditions; all is checked that can be before chains are run."""
    check_options(options)
    _check_stopping(options)
    registered = MODELS[options.model]
    try:
        model = registered.load()(**given_options(options, *registered.options))
    except ValueError as error:
        raise of_option(error, options) from None
    check_sweeps(options)
    if options.conditions is not None and model.conditions_type is None:
        raise UsageError(
            f"--conditions: the {options.model} model does not take structural zeros; use --model "
            f"{listed(_taking_zeros(options.name), 'or')}"
        )
    read = read_household_sample if model.table_type is Households else read_sample
    table, conditions, changes = read(options)
    with located(options):
        model = changes.grouped(model)
        model.check(table)
    return Inputs(model, table, conditions, changes)


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that are not the model's."""
    given = vars(options)
    if options.model in HOUSEHOLD_MODELS:
        if options.household is None:
            raise UsageError(
                f"--model {options.model}: needs --household, the column that says who lives with "
                "whom"
            )
        if options.conditions is not None:
            raise UsageError(
                f"--conditions: the {options.model} model takes --rules; a combination that is "
                "impossible for one person is a rule about each person"
            )
    if given.get("weights") is not None and options.model in HOUSEHOLD_MODELS:
        raise UsageError(
            f"--weights: the {options.model} model takes none; households are taken for a simple "
            "random sample"
        )
    for name in MODEL_OPTIONS:
        if given.get(name) is not None and name not in MODELS[options.model].options:
            others = [m for m in MODELS_OF[options.name] if name in MODELS[m].options]
            raise UsageError(f"{flag(name)}: is an option of --model {listed(others)} only")
    for names, models in ((HOUSEHOLD_OPTIONS, HOUSEHOLD_MODELS), (CELL_OPTIONS, CELL_MODELS)):
        for name in names if options.model not in models else ():
            if given.get(name) not in (None, False, "auto", "fixed"):
                raise UsageError(f"{flag(name)}: is an option of --model {listed(models)} only")
    for name in ("augmentation", "not_applicable"):
        if options.conditions is None and given.get(name) is not None:
            raise UsageError(f"{flag(name)}: says how --conditions are taken; give them too")


def of_option(error: ValueError, options: argparse.Namespace) -> UsageError:
    """The error of a field of a model, which its message begins with, as one of the option."""
    name = re.split(r"\W", str(error), maxsplit=1)[0]
    return UsageError(f"{flag(name) if name in vars(options) else name}{str(error)[len(name) :]}")


def check_sweeps(options: argparse.Namespace) -> None:
    """Refuse more sweeps than can be numbered."""
    try:
        Settings(options.chains, options.warmup, options.draws, options.thin, (), (1,))
    except ValueError:
        raise UsageError(
            "--warmup, --draws and --thin make more sweeps than 2**31; lower one of them"
        ) from None


def _taking_zeros(command: str) -> list[str]:
    """Models of the command that take structural zeros."""
    return [
        name
        for name in MODELS_OF[command]
        if name not in CELL_MODELS and MODELS[name].load().conditions_type is not None
    ]


def _check_stopping(options: argparse.Namespace) -> None:
    """Check the options that say when to stop; fill in what they leave open."""
    if options.draws is None:
        options.draws = DRAWS
        if options.until_rhat is None and options.chains > 1:
            options.until_rhat = UNTIL_RHAT
            options.max_minutes = options.max_minutes or DEFAULT_MINUTES
    if options.until_rhat is None:
        for name in STOPPING[1:]:
            if vars(options)[name] is not None:
                raise UsageError(f"{flag(name)}: is an option of --until-rhat only")
        return
    if options.chains == 1:
        raise UsageError("--until-rhat: compares chains; let --chains be 2 or more")
    if options.max_minutes is None:
        options.max_minutes = MAX_MINUTES


def check_datasets(options: argparse.Namespace, inputs: Inputs) -> None:
    """Refuse names that the format can hold nowhere, and more data sets than draws."""
    if counts_cells(options) and options.format not in ("csv", "parquet"):
        raise UsageError(
            f"--format {options.format}: data sets of a folder are folders of Parquet files; leave "
            "it out"
        )
    if inputs.changes.bins and counts_cells(options):
        raise UsageError("--bins: are for a file, not for a folder that is read into cells")
    try:
        names_in_file(
            [
                *persons_of(inputs.table).schema.variables,
                *filter(None, [options.household]),
                *(vars(options).get("carry") or ()),
            ],
            options.format,
        )
    except FormatError as error:
        where = "" if error.column is None else f" column {error.column!r}:"
        raise UsageError(f"--format {options.format}:{where} {error}") from None
    every = min(inputs.model.parameters_every, options.draws)
    kept = options.chains * (options.draws // every)
    if options.datasets > kept:
        raise UsageError(
            f"--datasets {options.datasets}: each needs a draw of its own, and --chains "
            f"{options.chains} --draws {options.draws} keep {kept}"
            + (f", one of {every}" if every > 1 else "")
        )


def given_options(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Options of these names that were given."""
    return {name: vars(options)[name] for name in names if vars(options)[name] is not None}
