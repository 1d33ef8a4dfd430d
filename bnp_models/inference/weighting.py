"""Runs on records or households with design weights, with the classes of the weights summed out.

The functions return a distribution of records, or of households (in names: law), as a `Run` on the
records without their weight class, which is summed out of its draws. All functions that use the
parameters of a run accept it. If there are no weights, it is the run itself.
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from bnp_models.data.arguments import check_kind
from bnp_models.data.household_weights import WeightedHouseholds
from bnp_models.data.weight_classes import DesignWeights, WeightedMicrodata
from bnp_models.inference.run import Run
from bnp_models.models.model import MakesHouseholds, PredictsCells
from bnp_models.zeros.structural_zeros import StructuralZeros

RunT = TypeVar("RunT", bound=Run)


def sample_law(run: RunT) -> RunT:
    """Return the distribution, as a `Run`, of a record, or household, of the sample.

    Parameters
    ----------
    run
        Chains of a model. Without design weights, it is returned unchanged.

    Examples
    --------
    >>> bnp.inference.sample_law(run) is run
    True
    """
    check_kind(Run, "sample_law(run)", run=run)
    return _law(run, lambda table: np.ones_like(table.class_weights))


def population_law(run: RunT) -> RunT:
    """Return the distribution, as a `Run`, of a person, or household, drawn at random from the
    population.

    Parameters
    ----------
    run
        Chains of a model. Without design weights, it is returned unchanged.

    Examples
    --------
    >>> bnp.inference.population_law(run) is run
    True
    """
    check_kind(Run, "population_law(run)", run=run)
    return _law(run, lambda table: table.class_weights)


def unsampled_law(run: RunT) -> RunT:
    """Return the distribution, as a `Run`, of a person, or household, that was not sampled.

    A record of weight w stands for w - 1 such persons.

    Parameters
    ----------
    run
        Chains of a model. Without design weights, it is returned unchanged.

    Raises
    ------
    MicrodataError
        If a weight is below one.

    Examples
    --------
    >>> bnp.inference.unsampled_law(run) is run
    True
    """
    check_kind(Run, "unsampled_law(run)", run=run)

    def unsampled(table):
        table.require_counts()
        rest = np.maximum(table.class_weights - 1, 0)
        # If everybody was sampled, nobody is left, and any distribution can be used.
        return rest if rest.any() else np.ones_like(rest)

    return _law(run, unsampled)


def _law(run: RunT, weights_of: Callable[[DesignWeights], np.ndarray]) -> RunT:
    """Distribution proportional to sum_s weights[s] p(x, s), as a `Run`."""
    table, model = run.table, run.model
    if isinstance(table, WeightedHouseholds):
        assert isinstance(model, MakesHouseholds)
        households = model.weight_households(run.parameters(), weights_of(table), table.class_rows)
        return dataclasses.replace(run, table=table.households, draws=run.draws | households)
    if not isinstance(table, WeightedMicrodata):
        return run
    if not isinstance(model, PredictsCells):
        raise ValueError(f"the {model.name} model takes no design weights")
    conditions = None if run.conditions is None else _without_class(run.conditions)
    law = dataclasses.replace(run, table=table.records, conditions=conditions)
    changed = model.weight_draws(
        run.parameters(), weights_of(table), law.num_levels, law.feasible_sets
    )
    every = run.settings.parameters_every
    return dataclasses.replace(law, draws=run.draws | {
        # Scalars are kept for all draws, arrays only for some of them.
        name: np.repeat(x, every, axis=1) if x.ndim == 2 else x for name, x in changed.items()
    })  # fmt: skip


@lru_cache(maxsize=8)
def _without_class(conditions: StructuralZeros) -> StructuralZeros:
    """The same structural zeros for records without the weight class."""
    schema = conditions.schema
    fewer = type(schema)(schema.variables[:-1], schema.levels[:-1])
    return StructuralZeros(fewer, conditions.conditions[:, :-1], conditions.rows)
