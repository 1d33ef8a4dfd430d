"""The population: its units, and its size, by an option or by weights that add up to it."""

import dataclasses
import logging
from typing import TypeVar

import numpy as np

from bnp_models.cli.commands import Protect, Risk
from bnp_models.cli.models import HOUSEHOLD_MODELS, MODELS_OF
from bnp_models.cli.options import UsageError
from bnp_models.cli.parts import Data
from bnp_models.data.households import Households
from bnp_models.data.microdata import Records
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weight_classes import DesignWeights

_LOG = logging.getLogger(__name__)

Sized = TypeVar("Sized", Risk, Protect)


def require_population(command: Risk | Protect) -> None:
    """Refuse a command without the size of the population, and without weights.

    Raises
    ------
    UsageError
        It says what is needed.
    """
    if command.population_size is None and command.data.weights is None:
        raise UsageError(
            f"--population-size: is needed: the number of {_units(command)} in the population, "
            "including those in the sample; or give --weights, if the weights add up to it"
        )


def weights_of(table: Records | Households) -> np.ndarray | None:
    """Design weights (n,) of the records or households, None if they have none."""
    return table.weights if isinstance(table, DesignWeights) else None


def with_population(command: Sized, weights: np.ndarray | None) -> Sized:
    """The command with the size of the population: as given, else the sum of the weights.

    Raises
    ------
    MicrodataError
        If the weights add up to the number of records or less.
    """
    require_population(command)
    if command.population_size is not None:
        return command
    assert weights is not None
    size = _sum_of(command.data, weights, _units(command))
    return dataclasses.replace(command, population_size=size)


def with_unit(command: Sized) -> Sized:
    """The command with its model: the usual one of persons, or of households, if none is given.

    For persons, it is without the options of households that are defaults.
    """
    fit = command.fit
    of_persons = fit.households.household is None
    usual = MODELS_OF[command.name][0] if of_persons else HOUSEHOLD_MODELS[0]
    fit = dataclasses.replace(fit, model=fit.model or usual)
    if of_persons and fit.model not in HOUSEHOLD_MODELS and fit.households.head == "auto":
        fit = dataclasses.replace(fit, households=dataclasses.replace(fit.households, head=None))
    return dataclasses.replace(command, fit=fit)


def _units(command: Risk | Protect) -> str:
    """What the size of the population counts: persons, or households."""
    return "persons" if command.fit.households.household is None else "households"


def _sum_of(data: Data, weights: np.ndarray, units: str) -> int:
    """The sum of design weights, as a number of persons or households, which is said."""
    total = round(float(weights.sum()))
    if total <= len(weights):
        raise MicrodataError(
            f"the weights add up to {total:,}, and there are {len(weights):,} "
            f"{'records' if units == 'persons' else units}: these weights do not count the {units} "
            "of the population; give --population-size, and weights that add up to it",
            file=data.sample, column=data.weights,
        )  # fmt: skip
    _LOG.warning(
        "%s: --population-size is not given; the weights in column %r add up to %s, and this is "
        "taken for the number of %s in the population",
        data.sample, data.weights, f"{total:,}", units,
    )  # fmt: skip
    return total
