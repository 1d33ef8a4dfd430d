"""Posterior predictive checks: comparison of the sample with simulated replicates.

A model that spreads records over too many cells expects more sample uniques than there are, and
then it also expects too many of them to be unique in the population. Replicates of the sample that
are simulated from the posterior show this without any knowledge of the population.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import softmax

from bnp_models.data.arguments import check_kind
from bnp_models.data.cells import joint_codes
from bnp_models.data.compositions import compositions_of
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.documents import Document
from bnp_models.data.households import Households, persons_of
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Schema
from bnp_models.data.weight_classes import records_of
from bnp_models.inference.run import HouseholdsRun, Run, is_of_households, spaced_draws
from bnp_models.inference.simulated_households import simulate_households
from bnp_models.inference.weighting import sample_law
from bnp_models.kernels.numerics.counting import first_rows, label_type
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.model import Completes
from bnp_models.models.nested.probabilities import log_possible_by_size
from bnp_models.models.nested.state import NESTED
from bnp_models.models.options import check_choice, typed_key
from bnp_models.synthesis.households import complete_households
from bnp_models.synthesis.partial import complete_sample
from bnp_models.synthesis.synthesize import simulate_samples
from bnp_models.zeros.boxes import Boxes
from bnp_models.zeros.structural_zeros import StructuralZeros

MAX_Z = 2.5
"""Difference from the model's expectation, in standard deviations, above which a warning is given.
"""

NUM_REPLICATES, NUM_HOUSEHOLD_REPLICATES = 100, 20
"""Default number of replicates of a sample of records, and of households, which take longer."""

MAX_RECORDS, MAX_HOUSEHOLDS, FEWEST_REPLICATES = 200_000_000, 1_000_000, 8
"""Limits for the records, and for the households whose compositions are compared, of all replicates
together; least number of replicates in any case."""

CELL_SIZES = (1, 2, 3)

NUM_WORST = 5

UNITS = ("person", "household")
"""Values of the option `unit`."""

_CHECKS, _SIZES = 0x435843, 0x53495A


class CheckEntry(Document):
    """One figure of the sample and of its replicates."""

    observed: float
    """In the sample."""
    predicted: float
    """Mean over replicates."""
    sd: float
    """Standard deviation over replicates."""
    z: float
    """(observed - predicted) / sd."""


class PairEntry(Document):
    """Two-way table."""

    variables: Sequence[str]
    z: float


class BoxEntry(Document):
    """Number of records in a region of possible cells."""

    box: int
    """Number of the region."""
    levels: Mapping[str, Sequence[str]]
    """Levels that the region admits, for each variable of which it does not admit all levels."""
    observed: float
    predicted: float
    sd: float
    z: float


class ChecksEntry(Document):
    """Comparison of the sample with replicates that were simulated from the posterior."""

    cells_with_1: CheckEntry
    """Cells with one record: sample uniques."""
    cells_with_2: CheckEntry
    cells_with_3: CheckEntry
    worst_pairs: Sequence[PairEntry]
    """Two-way tables in which the sample differs most from the replicates."""
    worst_boxes: Sequence[BoxEntry] | None = None
    """With conditions: disjoint feasible boxes whose number of records fits worst."""
    household_sizes: Mapping[str, CheckEntry] | None = None
    """For the risk of households, whose cells are compositions: number of households of each
    size."""
    replicates: int


class Check(NamedTuple):
    """One figure of the sample and of its replicates."""

    observed: float
    """Figure of the sample."""
    replicated: np.ndarray
    """(chains, replicates) figures of the replicates."""

    @property
    def predicted(self) -> float:
        """Mean over the replicates."""
        return float(self.replicated.mean())

    @property
    def sd(self) -> float:
        """Standard deviation of the replicates."""
        return float(self.replicated.std(ddof=1))

    @property
    def z(self) -> float:
        """(observed - predicted) / sd; 0 if all are the same."""
        difference = self.observed - self.predicted
        return difference / max(self.sd, 1e-9) if difference else 0.0

    def document(self) -> CheckEntry:
        """Entry of ``risk.json``."""
        return CheckEntry.of(self)


@dataclass(frozen=True, eq=False)
@displayed
class PredictiveChecks:
    """Comparison of a sample with its replicates.

    Examples
    --------
    >>> checks = bnp.predictive_checks(run)
    >>> checks.cells[1].observed == len(table.tabulated.unique_cells)
    True
    """

    cells: dict[int, Check]
    """Number of cells with one, two and three records."""
    pairs: dict[tuple[str, str], Check]
    """Pearson distance of each two-way table from the mean table of the replicates, worst first. A
    distance below its expected value is not a misfit, because the model was fitted to this table.
    """
    boxes: dict[int, Check]
    """With structural zeros: records in each of the disjoint feasible boxes, worst first."""
    levels_of_boxes: dict[int, dict[str, tuple[str, ...]]]
    """Levels that each box admits, of the variables of which it does not admit all."""
    sizes: dict[int, Check] = field(default_factory=dict)
    """If the cells are compositions of households: number of households of each size."""

    @property
    def num_replicates(self) -> int:
        """Number of replicates."""
        return self.cells[1].replicated.size

    def warnings(self, of_files: bool = False) -> list[str]:
        """Sentences on a misfit and the direction of its error; none if the model fits.

        For the number of cells with one record, the sentence gives the direction of the error: if
        the model expects too many sample uniques, the estimated number of population uniques is too
        high, or, if the sentence is about synthetic files (`of_files`), too many records of these
        are unique.
        """
        uniques = self.cells[1]
        if abs(uniques.z) <= MAX_Z:
            return []
        more, high = ("more", "high") if uniques.z < 0 else ("fewer", "low")
        declare = "declare the structural zeros of the variables"
        if self.sizes:
            declare = "give the rules that households obey (--rules)"
        consequence = (
            f"so that its own tau_1, tau_2 and records' risks are probably too {high}, and the "
            "correction for overdispersion (ties) removes this error only in part"
        )
        if of_files:
            consequence = f"so that the files have {more} unique records than another sample would"
        return [
            f"the model does not fit: it expects {more} sample uniques ({uniques.predicted:.0f}, "
            f"sd {uniques.sd:.0f}) than there are ({uniques.observed:.0f}; z = {uniques.z:.1f}), "
            f"{consequence}; {declare}, choose fewer or coarser variables, or another model"
        ]

    def document(self) -> ChecksEntry:
        """Entry "checks" of ``risk.json`` and ``run.json``."""
        boxes = [
            BoxEntry(box=box, levels=self.levels_of_boxes[box], **check.document())
            for box, check in itertools.islice(self.boxes.items(), NUM_WORST)
        ]
        return ChecksEntry(
            cells_with_1=self.cells[1].document(),
            cells_with_2=self.cells[2].document(),
            cells_with_3=self.cells[3].document(),
            worst_pairs=[
                PairEntry(variables=pair, z=check.z)
                for pair, check in itertools.islice(self.pairs.items(), NUM_WORST)
            ],
            worst_boxes=boxes or None,
            household_sizes={str(size): x.document() for size, x in self.sizes.items()} or None,
            replicates=self.num_replicates,
        )

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        names = {f"cells of {size}": check for size, check in self.cells.items()}
        worst = itertools.islice(self.pairs.items(), 2)
        names |= {" x ".join(pair): check for pair, check in worst}
        frame = pd.DataFrame([{"figure": name, **x.document()} for name, x in names.items()])
        return Shown(f"PredictiveChecks: {counted(self.num_replicates, 'replicate')}", frame=frame)


def predictive_checks(
    run: Run,
    num_replicates: int | None = None,
    *,
    unit: str = "person",
    key: jax.Array | None = None,
) -> PredictiveChecks:
    """Compare a sample with replicates simulated from its posterior.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``. If values are missing, the sample is compared
        as each draw completes it. Design weights are not used, because replicates are samples of
        the same design.
    num_replicates
        Number of replicates, each from another draw; it is rounded so that all chains have equally
        many. Default: 100 (20 for persons of households), but fewer for very large samples, and at
        most the number of draws.
    unit
        Of a run on households, what the cells are. "person": those of persons. "household": the
        compositions of complete households; the numbers of households of each size are then
        compared too.
    key
        By default one that `run` set aside.

    Raises
    ------
    ValueError
        If there are fewer than two draws, `run` kept no parameters, or the model simulates none;
        or if `unit` is unknown, or "household" for a run on records.

    Notes
    -----
    Figures of the data are compared with their posterior predictive distribution (Gelman, Meng &
    Stern 1996, Statistica Sinica 6, 733). z is (observed - predicted) / sd.

    Examples
    --------
    >>> checks = bnp.predictive_checks(run, num_replicates=10)
    >>> checks.num_replicates
    10
    """
    check_kind(Run, "predictive_checks(run)", run=run)
    check_choice(UNITS, unit=unit)
    if key is not None:
        key = typed_key(key)
    number = _of_each_chain(run, num_replicates, unit)
    num_chains = run.settings.num_chains
    key = jax.random.fold_in(run.key if key is None else key, _CHECKS)
    chains, run = run, sample_law(run)
    table = persons_of(run.table)
    compared: list[list[np.ndarray]] | None = None
    if unit == "household":
        samples, compared = _compositions(run, num_chains * number, key)
    else:
        samples = list(simulate_samples(run, num_chains * number, key))
    incomplete = table.has_missing
    observed = _completed(chains, key, num_chains * number) if incomplete else [table.tabulated]

    def check(of_observed: ArrayLike, of_samples: ArrayLike) -> Check:
        """Make the check of a figure from its values in the sample and in the replicates."""
        replicated = np.asarray(of_samples, float).reshape(num_chains, number)
        return Check(float(np.asarray(of_observed, float).mean()), replicated)

    num_levels, names = table.schema.num_levels, table.schema.variables
    if compared is None:
        compared = [[x.counts for x in part] for part in (observed, samples)]
    cells = {
        size: check(*([np.sum(counts == size) for counts in part] for part in compared))
        for size in CELL_SIZES
    }
    pairs = {}
    two_way = (_two_way_tables(x, num_levels) for x in (observed, samples))
    for pair, *tables in zip(itertools.combinations(names, 2), *two_way, strict=True):
        expected = tables[1].mean(axis=0)
        pairs[pair] = check(*(_distance(part, expected) for part in tables))
    boxes, levels = {}, {}
    if isinstance(run.conditions, StructuralZeros):
        first = first_rows(num_levels)
        feasible = run.conditions.feasible
        levels = _levels_of_boxes(feasible, table.schema)
        for box, admitted in enumerate(feasible.sets):
            boxes[box] = check(
                *([admitted[one.codes + first].all(axis=1) @ one.counts for one in x]
                  for x in (observed, samples))
            )  # fmt: skip
    pairs = dict(sorted(pairs.items(), key=lambda item: -item[1].z))
    boxes = dict(sorted(boxes.items(), key=lambda item: -abs(item[1].z)))
    sizes = {}
    if unit == "household" and is_of_households(run):
        sizes = {size: check(*of) for size, of in _sizes(run, num_chains * number, key).items()}
    return PredictiveChecks(cells, pairs, boxes, levels, sizes)


def _compositions(
    run: Run, number: int, key: jax.Array
) -> tuple[list[ContingencyTable], list[list[np.ndarray]]]:
    """Persons of replicates, and households of each composition: of the sample, of replicates.

    Raises
    ------
    ValueError
        If the run is not of households.
    """
    if not is_of_households(run):
        raise ValueError('unit: "household" needs a run on households')
    run.table.require_complete("a check of compositions")
    persons, counts = [], []
    for made in simulate_households(run, number, key):
        persons.append(made.persons.tabulated)
        counts.append(compositions_of(made).counts)
    return persons, [[compositions_of(run.table).counts], counts]


def _sizes(run: HouseholdsRun, number: int, key: jax.Array) -> dict[int, tuple[int, list[int]]]:
    """Households of each size, in the sample and in replicates whose sizes are drawn too."""
    sizes, observed = np.unique(run.table.sizes, return_counts=True)
    data = run.model.prepare(run.table, run.conditions)
    key_possible, key_counts = Keys(jax.random.fold_in(key, _SIZES), 2)
    rng = numpy_generator(key_counts)
    replicated = []
    for m, draw in enumerate(spaced_draws(run, number)):
        of_draw = {name: draw[name][None] for name in NESTED} | {"number": np.array([m])}
        log_p = np.asarray(log_possible_by_size(of_draw, data, key_possible), float)[0]
        replicated.append(rng.multinomial(run.table.n, softmax(log_p)))
    of_size = np.transpose(replicated).tolist()
    return {
        int(size): (int(n), replicates)
        for size, n, replicates in zip(sizes, observed, of_size, strict=True)
    }


def _levels_of_boxes(boxes: Boxes, schema: Schema) -> dict[int, dict[str, tuple[str, ...]]]:
    """Levels that each box admits, of the variables of which it does not admit all."""
    return {
        box: {
            name: tuple(itertools.compress(map(str, labels), sets[box]))
            for name, labels, sets in zip(
                schema.variables, schema.levels, boxes.by_variable, strict=True
            )
            if not sets[box].all()
        }
        for box in range(len(boxes))
    }


def _of_each_chain(run: Run, wanted: int | None, unit: str) -> int:
    """Number of replicates of each chain."""
    settings = run.settings
    kept = settings.num_arrays
    if settings.num_chains * kept < 2:
        raise ValueError("predictive checks need at least two draws whose arrays were kept")
    if wanted is None:
        persons_of_households = unit == "person" and isinstance(run.table, Households)
        wanted = NUM_HOUSEHOLD_REPLICATES if persons_of_households else NUM_REPLICATES
        most = MAX_RECORDS if unit == "person" else MAX_HOUSEHOLDS
        wanted = max(FEWEST_REPLICATES, min(wanted, most // run.table.n))
    return max(min(wanted // settings.num_chains, kept), 1 + (settings.num_chains == 1))


def _completed(run: Run, key: jax.Array, number: int) -> list[ContingencyTable]:
    """Cells of the sample as completed by each draw."""
    if is_of_households(run):
        return [made.persons.tabulated for made in complete_households(run, number)]
    if isinstance(run.model, Completes) and isinstance(run.table, Microdata):
        data = run.model.prepare(run.table, run.conditions)
        completed = (
            complete_sample(run.model, jax.random.fold_in(key, number + m), draw, data)
            for m, draw in enumerate(spaced_draws(run, number))
        )
        return [records_of(replace(run.table, codes=codes)).tabulated for codes in completed]
    raise ValueError(f"the {run.model.name} model does not complete records")


def _two_way_tables(
    samples: Sequence[ContingencyTable], num_levels: Sequence[int]
) -> Iterator[np.ndarray]:
    """Counts (samples, levels) of the joint levels of each pair of variables, in each sample.

    All samples are counted at once, because many variables have very many pairs.
    """
    smallest = label_type(max(num_levels))
    codes = np.concatenate([one.codes.T.astype(smallest) for one in samples], axis=1)
    counts = np.concatenate([one.counts for one in samples]).astype(float)
    sample = np.repeat(np.arange(len(samples)), [len(one.counts) for one in samples])
    for j, size in enumerate(num_levels):
        first = joint_codes([sample, codes[j]], (len(samples), size))
        for k in range(j + 1, len(num_levels)):
            sizes = len(samples) * size, num_levels[k]
            joint = joint_codes([first, codes[k]], sizes)
            yield np.bincount(joint, counts, math.prod(sizes)).reshape(len(samples), -1)


def _distance(tables: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Pearson's distance of each table from the expected one; empty cells count half a record."""
    return np.sum((tables - expected) ** 2 / np.maximum(expected, 0.5), axis=1)
