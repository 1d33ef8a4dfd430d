"""Input and options of commands, checked before any work is done."""

import dataclasses
import re
from typing import Any, NamedTuple

from bnp_models.cli.changes import Changes
from bnp_models.cli.column_checks import tell_of_relative
from bnp_models.cli.commands import Datasets, Impute, Protect, Risk, Sampling, Synthesize
from bnp_models.cli.folder import located
from bnp_models.cli.models import (
    CELL_MODELS,
    HOUSEHOLD_MODELS,
    MODELS,
    MODELS_OF,
    counts_cells,
)
from bnp_models.cli.options import UsageError, flag, values_of
from bnp_models.cli.parts import Chains, Fit
from bnp_models.cli.samples import read_household_sample, read_sample
from bnp_models.data.households import Households, persons_of
from bnp_models.data.messages import listed
from bnp_models.data.microdata import Records
from bnp_models.data.stata_spss import FormatError, names_in_file
from bnp_models.inference.trace import Settings, interval_of_arrays
from bnp_models.models.model import Conditions, Model
from bnp_models.models.nested.relative import relative_to_heads

CELL_OPTIONS = ("cells", "hyperparameters")

# Most households that the default of --prior-possible takes for possible, and least number of the
# sample's for each of these (experiments/synthesis/member_classes).
PRIOR_POSSIBLE, LEAST_PER_POSSIBLE = 60, 20

# Options of the models of persons within households.
HOUSEHOLD_OPTIONS = ("household", "household_variables", "rules", "roles", "head")

MODEL_OPTIONS = tuple(dict.fromkeys(name for model in MODELS.values() for name in model.options))


class Inputs(NamedTuple):
    """Input of a command that samples."""

    model: Model
    table: Records | Households
    conditions: Conditions | None
    """`StructuralZeros` or `Rules`; None where there are none."""
    changes: Changes
    """Recodings of the sample's levels."""
    chains: Chains
    """Options of the chains, with all that they leave open."""


def checked_input(command: Sampling) -> Inputs:
    """Model, coded sample and conditions; all is checked that can be before chains are run."""
    data, fit = command.data, command.fit
    check_options(command)
    chains = command.chains.settled()
    model = model_of(fit)
    check_sweeps(chains)
    if data.zeros is not None and model.conditions_type is None:
        raise UsageError(
            f"{data.zeros}: the {fit.chosen_model} model does not take structural zeros; use "
            f"--model {listed(_taking_zeros(command.name), 'or')}"
        )
    table: Records | Households
    conditions: Conditions | None
    made = command.made if isinstance(command, Synthesize) else None
    keep_missing = made is not None and made.keep_missing
    if model.table_type is Households:
        table, conditions, changes = read_household_sample(
            data, fit, keep_missing, _beside(command)
        )
    else:
        table, conditions, changes = read_sample(
            data, fit, as_cells=counts_cells(command.name, fit.chosen_model, data.sample),
            beside=_beside(command), keep_missing=keep_missing,
            takes_zeros=model.conditions_type is not None,
            draws_in_bins=isinstance(command, Synthesize | Impute),
            edit_seed=chains.seed if isinstance(command, Impute) and command.edit else None,
        )  # fmt: skip
    with located(data):
        model = changes.grouped(model)
        if isinstance(table, Households):
            model = _settled_by_households(command, model, table)
        model.check(table)
    return Inputs(model, table, conditions, changes, chains)


def prior_possible_of(num_households: int) -> int:
    """Default of --prior-possible for files with values relative to the head's."""
    return min(PRIOR_POSSIBLE, num_households // LEAST_PER_POSSIBLE)


def _settled_by_households(command: Sampling, model: Any, table: Households) -> Any:
    """The model, with the options that files of households take from the sample by default."""
    given, named = command.fit.households, command.fit.named_ordered
    if not isinstance(command, Synthesize | Impute):
        if given.relative is None:
            tell_of_relative(command.data, table)
        return model
    if given.relative not in (None, "auto"):
        return model
    # Codes have no groups, and those of equal values no order.
    groups = dict(model.groups)
    chosen = tuple(
        (name, kind, labels)
        for name, kind, labels in relative_to_heads(table)
        if name not in groups and (kind == "difference" or name not in named)
    )
    if not chosen:
        tell_of_relative(command.data, table, was_sought=True)
        return model
    model = dataclasses.replace(model, relative=chosen)
    if given.rules is None or given.prior_possible is not None:
        return model
    # Without values relative to the head's, this prior makes couples rarer.
    return dataclasses.replace(model, prior_possible=prior_possible_of(table.n))


def _beside(command: Sampling) -> dict[str, str]:
    """Columns of the sample that are read and not modelled, by what they have."""
    if isinstance(command, Protect):
        asked = command.protection
        strata = {} if asked.strata is None else {"strata": asked.strata}
        linked = {f"linked {name}": name for name, _ in asked.link}
        return strata | {f"carried {name}": name for name in asked.carry} | linked
    carry = command.made.carry if isinstance(command, Synthesize) else ()
    return {f"carried {name}": name for name in carry}


def model_of(fit: Fit, *arguments: Any) -> Any:
    """The model with the options that were given, after these arguments.

    Raises
    ------
    UsageError
        If it refuses one.
    """
    registered, given = MODELS[fit.chosen_model], values_of(fit)
    try:
        return registered.load()(
            *arguments,
            **{
                name: value
                for name in registered.options
                if (value := given[name]) is not None and (name, value) != ("relative", "auto")
            },
        )
    except ValueError as error:
        # Its message begins with the field.
        name = re.split(r"\W", str(error), maxsplit=1)[0]
        said = flag(name) if name in given else name
        raise UsageError(f"{said}{str(error)[len(name) :]}") from None


def check_options(command: Sampling) -> None:
    """Refuse options that are not the model's."""
    data, fit = command.data, command.fit
    given, model = values_of(fit), fit.chosen_model
    if isinstance(command, Impute) and command.edit:
        _check_edit(command)
    if model in HOUSEHOLD_MODELS:
        if fit.households.household is None:
            raise UsageError(
                f"--model {model}: needs --household, the column that identifies the household "
                "of each person"
            )
        if data.zeros is not None:
            raise UsageError(
                f"{data.zeros}: the {model} model takes --rules instead; write a combination "
                "that is impossible for one person as a rule about each person"
            )
    made = not isinstance(command, Risk | Protect)
    if fit.households.relative == "auto" and not made:
        raise UsageError(
            "--relative auto: cannot be used for the risk of households; name the variables, or "
            "leave --relative out"
        )
    if data.weights is not None and model in HOUSEHOLD_MODELS and made:
        raise UsageError(
            "--weights: synthetic households are made without design weights, because the files "
            "have as many households of each size as the sample; leave --weights out, or use them "
            "for the risk of households (bnp-models risk)"
        )
    for names, models in ((HOUSEHOLD_OPTIONS, HOUSEHOLD_MODELS), (CELL_OPTIONS, CELL_MODELS)):
        for name in names if model not in models else ():
            if given[name] not in (None, "auto"):
                raise UsageError(
                    f"{flag(name)}: can be used only with --model {listed(models, 'or')}; say "
                    f"--model {next(iter(models))}, or leave it out"
                )
    for name in MODEL_OPTIONS:
        if given[name] is not None and name not in MODELS[model].options:
            others = [m for m in MODELS_OF[command.name] if name in MODELS[m].options]
            raise UsageError(
                f"{flag(name)}: can be used only with --model {listed(others, 'or')}; leave it out"
            )
    _check_unused(fit)
    for name in ("augmentation", "not_applicable"):
        as_level = data.text.empty_as_level or data.text.settles_empty
        none = data.zeros is None and not as_level
        if none and given[name] is not None:
            raise UsageError(
                f"{flag(name)}: is used only with structural zeros; add --conditions, or leave "
                f"{flag(name)} out"
            )


def _check_edit(command: Impute) -> None:
    """Refuse to edit without structural zeros, by which it is known what is impossible."""
    fit = command.fit
    if fit.chosen_model in HOUSEHOLD_MODELS or fit.households.household is not None:
        raise UsageError(
            "--edit: cannot be used with --household, because it edits single records, and not "
            "households that break a rule; leave it out"
        )
    if command.data.conditions is None:
        raise UsageError(
            "--edit: needs the file of structural zeros that says which records are impossible; "
            "add --conditions, or leave --edit out"
        )


def _check_unused(fit: Fit) -> None:
    """Refuse options that other options leave without a use."""
    households = fit.households
    if fit.level_shape is not None and fit.level_prior is not None:
        raise UsageError("--level-prior: is replaced by --level-shape; leave one of them out")
    if households.rules is None and households.prior_possible:
        raise UsageError(
            "--prior-possible: is used only with --rules, without which no household is "
            "impossible; add --rules, or leave --prior-possible out"
        )
    if households.rules is None and households.head == "no" and households.roles is not None:
        raise UsageError(
            "--roles: is used only by --rules and to find the head; leave out --roles or --head no"
        )


def check_sweeps(chains: Chains) -> None:
    """Refuse more sweeps than can be numbered."""
    try:
        Settings(chains.chains, chains.warmup, chains.num_draws, chains.thin, (), (1,))
    except ValueError:
        raise UsageError(
            "--warmup, --draws and --thin make more sweeps than 2**31; lower one of them"
        ) from None


def _taking_zeros(command: str) -> list[str]:
    """Models of the command that take structural zeros."""
    return [
        name
        for name in MODELS_OF[command]
        if name not in (*CELL_MODELS, *HOUSEHOLD_MODELS)
        and MODELS[name].load().conditions_type is not None
    ]


def check_datasets(command: Synthesize | Impute, inputs: Inputs) -> None:
    """Refuse names that the format can hold nowhere, and more data sets than draws."""
    made, chains = command.made, inputs.chains
    as_cells = counts_cells(command.name, command.fit.chosen_model, command.data.sample)
    if as_cells and made.format not in ("csv", "parquet"):
        raise UsageError(
            f"--format {made.format}: the data sets of a folder are written as folders of Parquet "
            "files; leave --format out"
        )
    if made.keep_missing and as_cells:
        raise UsageError(
            "--keep-missing: cannot be used if SAMPLE is a folder, of which only cell counts are "
            "kept; leave it out, or give one file"
        )
    if inputs.changes.bins and as_cells:
        raise UsageError(
            "--bins: cannot be used if SAMPLE is a folder, of which only cell counts are kept; "
            "leave it out, or give one file"
        )
    try:
        names_in_file(
            [
                *persons_of(inputs.table).schema.variables,
                *filter(None, [command.fit.households.household]),
                *made.carry,
            ],
            made.format,
        )
    except FormatError as error:
        where = "" if error.column is None else f" column {error.column!r}:"
        raise UsageError(f"--format {made.format}:{where} {error}") from None
    if made.from_ is None:
        every = interval_of_arrays(inputs.model, inputs.table, chains.chains, chains.num_draws)
        check_draws(
            made, chains.chains * (chains.num_draws // every),
            f"with --chains {chains.chains} --draws {chains.num_draws} ",
            f" (one in {every})" if every > 1 else "",
        )  # fmt: skip


def check_draws(made: Datasets, kept: int, why: str = "", which: str = "") -> None:
    """Refuse more data sets than there are draws that can be used."""
    if made.datasets > kept:
        raise UsageError(
            f"--datasets {made.datasets}: each data set needs a draw of its own, but {why}only "
            f"{kept} draws can be used{which}; make fewer data sets"
        )
