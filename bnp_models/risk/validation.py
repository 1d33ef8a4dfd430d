"""Validation within the sample: a part is fitted, and the whole sample is its population.

The number of uniques of the part that are unique in the whole sample is known, so that the error of
its estimate is known too. This error is not a bound on the error for the population, which is
larger.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.documents import Document, Share
from bnp_models.data.microdata import Microdata
from bnp_models.data.weight_classes import require_unweighted
from bnp_models.inference.sampling import coded_input, sample
from bnp_models.kernels.variates.rng import key_array, numpy_generator
from bnp_models.models.model import Model
from bnp_models.models.options import typed_key
from bnp_models.risk.population import population_risk
from bnp_models.zeros.structural_zeros import StructuralZeros

FRACTION = 0.25
"""Share of the sample that is fitted."""


class SplitEntry(Document):
    """Estimate from one random part of the sample, and the truth."""

    sample_uniques: int
    truth: float
    mean: float
    q025: float
    q975: float


class ValidationEntry(Document):
    """With --validate: results of fitting the model to random parts of the sample."""

    fraction: Share
    """Share of the sample in each part."""
    ratio: float | None
    """Estimates divided by the truth, all parts together; null if no truth is above zero."""
    covered: int
    """Number of parts whose interval contains the truth."""
    splits: Sequence[SplitEntry]


class Split(NamedTuple):
    """Estimate from one random part of the sample, and the truth."""

    sample_uniques: int
    """Uniques of the part."""
    truth: int
    """How many of them are unique in the whole sample."""
    tau1: np.ndarray
    """(chains, draws) draws of that number given the part."""

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return float(self.tau1.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval."""
        low, high = np.quantile(self.tau1, [0.025, 0.975])
        return float(low), float(high)

    @property
    def covered(self) -> bool:
        """Whether the interval contains the truth."""
        low, high = self.interval
        return low <= self.truth <= high

    def document(self) -> SplitEntry:
        """Entry of ``risk.json``."""
        low, high = self.interval
        return SplitEntry.of(self, q025=low, q975=high)


@dataclass(frozen=True)
@displayed
class Validation:
    """Results of fitting a model to random parts of a sample.

    Examples
    --------
    >>> validation = bnp.validate_within(
    ...     model, table, key=jax.random.key(0), num_splits=1, fraction=0.99, **short
    ... )
    >>> len(validation.splits)
    1
    """

    splits: tuple[Split, ...]
    fraction: float
    """Share of the sample that was fitted."""

    @property
    def ratio(self) -> float:
        """Sum of the estimates divided by the sum of the truths; nan if all truths are zero."""
        truth = sum(split.truth for split in self.splits)
        return sum(split.mean for split in self.splits) / truth if truth else math.nan

    def warnings(self) -> list[str]:
        """Sentence if the intervals of most parts miss the truth, with the direction."""
        missed = [split for split in self.splits if not split.covered]
        if 2 * len(missed) <= len(self.splits):
            return []
        high = sum(split.mean > split.truth for split in missed)
        side = "high" if 2 * high > len(missed) else "low"
        return [
            f"validation within the sample fails: with the model fitted to {self.fraction:.0%} of "
            "the sample, the 95% interval of the number of its uniques that are also unique in the "
            f"whole sample misses the truth in {len(missed)} of {len(self.splits)} splits "
            f"(estimates are {self.ratio:.2f} times the truth); tau_1 is probably too {side}"
        ]

    def document(self) -> ValidationEntry:
        """Entry "validation" of ``risk.json``."""
        return ValidationEntry(
            fraction=self.fraction,
            ratio=None if math.isnan(self.ratio) else self.ratio,
            covered=sum(split.covered for split in self.splits),
            splits=[split.document() for split in self.splits],
        )

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        rows = [split.document() for split in self.splits]
        title = (
            f"Validation: {counted(len(rows), 'split')}, {self.fraction:.0%} of the sample fitted"
        )
        return Shown(title, {"estimates over truths": f"{self.ratio:.3g}"}, pd.DataFrame(rows))


def validate_within(
    model: Model,
    table: Microdata | pd.DataFrame,
    *,
    key: jax.Array,
    conditions: StructuralZeros | pd.DataFrame | None = None,
    num_splits: int = 3,
    fraction: float = FRACTION,
    **options: Any,
) -> Validation:
    """Fit a model to random parts of a sample, and compare the results with the whole sample.

    Parameters
    ----------
    model, table, conditions
        As for `sample`; no value may be missing.
    key
        Used once.
    num_splits
        Number of random parts; each needs chains of its own.
    fraction
        Share of the records in each part.
    options
        Options of `sample`: num_chains, num_warmup, num_samples, thin and so on.

    Returns
    -------
    validation

    Raises
    ------
    ValueError
        If the fraction is not between 0 and 1, if a part would have fewer than two records, or if
        the records have design weights (the parts are simple random samples).

    Examples
    --------
    >>> validation = bnp.validate_within(
    ...     model, table, key=jax.random.key(0), num_splits=1, fraction=0.99, **short
    ... )
    >>> validation.splits[0].tau1.shape
    (2, 20)
    """
    call = "validate_within(model, table, key=...)"
    table, conditions = coded_input(call, model, table, conditions)
    key = typed_key(key)
    require_unweighted(table, "validation within the sample")
    size = round(fraction * table.n)
    if not 2 <= size < table.n:
        raise ValueError(f"fraction {fraction} of {table.n} records leaves no part to fit")
    whole = table.cells()
    unique = whole.counts[whole.record_cell] == 1
    splits = []
    for key_split in key_array(key, num_splits):
        key_choice, key_chains = key_array(key_split, 2)
        chosen = np.sort(numpy_generator(key_choice).choice(table.n, size, replace=False))
        part = Microdata(table.schema, table.codes[chosen])
        run = sample(model, part, key=key_chains, conditions=conditions, **options)
        risk = population_risk(run, table.n)
        truth = int(unique[chosen[risk.rows]].sum())
        splits.append(Split(len(risk.rows), truth, risk.tau1))
    return Validation(tuple(splits), fraction)
