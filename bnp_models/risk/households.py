"""Disclosure risk of households, and of persons through their households.

The unit is the household. Its key is its composition: its values of the household variables and the
values of its members, in no order; a head at household level is compared with heads. Given the
parameters of one kept draw, an unsampled household of the population has composition (h, {x}) with
probability

    c sum_g pi_g lambda_g(h) prod_i sum_s omega_gs phi_gs(x_i) / P(possible)

where c is the number of distinct orders of the members x_1, .., x_m. The cells of
`bnp_models.risk.taus` are then compositions, its records are households, and N is the number of
households of the population: tau_1, tau_2, r_1, r_2 and the correction for overdispersion are
computed as for persons.

**Persons.** A person is found alone if nobody else in the population has the same values of all
variables. A person is found through the household if no other household of the population has the
composition of the person's household. Whoever is found alone is found through the household too,
because another household of the same composition would have a person with the same values. The
probability that a person is found in one of these two ways, `r_household`, is therefore r_1 of the
household, and 0 if another household of the sample has its composition.

The person's own r_1 and r_2 are those of a person who is drawn at random from the members of the
possible households, in a population of N (persons of the sample) / (households of the sample)
persons, where design weights count. They ignore that the persons of a household are similar to each
other.

**Design weights.** With the weights of households (`bnp_models.data.weighted_households`), a
household that is not in the sample, and a person in one, has the distribution of `unsampled_law`,
as records with weights have.

sdcMicro's hierarchical risk, 1 - prod (1 - r_2) over the persons of a household (Templ, Kowarik &
Meindl 2015, doi:10.18637/jss.v067.i04), takes persons as found independently of each other and
alone. It is computed from the persons' r_2 for comparison.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind, check_number
from bnp_models.data.compositions import Compositions, compositions_of
from bnp_models.data.contingency import labels_of
from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.household_weights import WeightedHouseholds
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.inference.run import HouseholdsRun, Run, shape_of_draws
from bnp_models.inference.weighting import sample_law, unsampled_law
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.models.nested.ndpmpm import NDPMPM
from bnp_models.models.nested.probabilities import knows_persons
from bnp_models.models.options import check_choice, typed_key
from bnp_models.risk.evaluator import Block, LogProbabilities
from bnp_models.risk.household_probabilities import (
    Laws,
    LogProbability,
    Parameters,
    simulated_unseen,
)
from bnp_models.risk.overdispersion import (
    OF_COMPOSITIONS,
    OF_RECORDS,
    TIES,
    OverdispersionPosterior,
    Prior,
)
from bnp_models.risk.population import PopulationRisk, checked_thin
from bnp_models.risk.taus import RiskSums

_MAX_POPULATION = 2**53

_TAKEN = ("row", "f", "r1", "r2", "r_household", "hierarchical")


@dataclass(frozen=True, eq=False)
@displayed
class HouseholdRisk:
    """Posterior of the disclosure risk of a sample of households.

    Examples
    --------
    >>> model = bnp.NDPMPM(components=4, member_components=2)
    >>> run = bnp.sample(model, households, key=jax.random.key(0), **short)
    >>> bnp.household_risk(run, 5_000).household_table().columns.tolist()
    ['household', 'f', 'r1', 'r2', 'hierarchical']
    """

    run: HouseholdsRun
    """Chains from whose draws the risk was computed."""
    law: HouseholdsRun
    """Run on the households without weight classes; the run itself if there are no weights."""
    compositions: Compositions
    """Compositions of the sample's households."""
    households: PopulationRisk
    """Risk of the households: its records are the households, and its cells the compositions."""
    persons: PopulationRisk | None
    """Risk of the persons by their own values. None if the rules give no closed form for it."""

    @property
    def share(self) -> float:
        """Part of tau_1 that is taken from the chains: all of it."""
        return 1.0

    @property
    def table(self) -> Households:
        """The households of the sample."""
        return self.law.table

    @property
    def weighted(self) -> WeightedHouseholds | None:
        """The sample with its design weights; None if it has none."""
        return self.run.table if isinstance(self.run.table, WeightedHouseholds) else None

    @property
    def population_size(self) -> int:
        """Number N of households in the population."""
        return self.households.population_size

    @property
    def num_persons(self) -> int:
        """Persons in the population, if its households have as many as those of the sample."""
        return _num_persons(self.run.table, self.population_size)

    @property
    def is_known(self) -> bool:
        """Whether tau_1 of households is known without a model."""
        return self.households.is_known

    @cached_property
    def r1(self) -> np.ndarray:
        """(n,) posterior probability that each household is unique in the population."""
        return self.households.by_record["r1"].to_numpy()

    @cached_property
    def r2(self) -> np.ndarray:
        """(n,) posterior mean of 1/F of each household."""
        return self.households.by_record["r2"].to_numpy()

    @cached_property
    def hierarchical(self) -> np.ndarray:
        """(n,) sdcMicro's hierarchical risk 1 - prod (1 - r_2) of the household's persons; NaN if
        the persons' own risk is not known."""
        if self.persons is None:
            return np.full(self.table.n, np.nan)
        log_rest = np.log1p(-np.minimum(self._own["r2"].to_numpy(), 1 - 1e-16))
        return -np.expm1(np.bincount(self.table.of_household, log_rest, self.table.n))

    @cached_property
    def _own(self) -> pd.DataFrame:
        """Columns f, r1 and r2 of each person by the person's own values; r1 and r2 are nan if they
        are not known."""
        if self.persons is not None:
            return self.persons.by_record
        cells = self.table.persons.cells()
        f = cells.counts[cells.record_cell]
        return pd.DataFrame({"f": f, "r1": np.nan, "r2": np.nan})

    @cached_property
    def r_household(self) -> np.ndarray:
        """(N,) posterior probability that each person is found, alone or through the household.

        It is r_1 of the household. The correction for overdispersion is estimated for households
        and for persons separately, so that the person's own r_1 may be estimated to be larger; it
        is then the larger one.
        """
        return np.fmax(self.r1[self.table.of_household], self._own["r1"].to_numpy())

    def household_table(self) -> pd.DataFrame:
        """One row per household, riskiest first: household, f, r1, r2 and hierarchical.

        f is the number of households of the sample with the same composition, and hierarchical the
        risk of sdcMicro.
        """
        ids = pd.Series(self.table.ids, name="household").infer_objects()
        frame = pd.concat([ids, self.households.by_record], axis=1)
        frame["hierarchical"] = self.hierarchical
        return frame.sort_values(["r1", "r2"], ascending=False, kind="stable", ignore_index=True)

    def records(self) -> pd.DataFrame:
        """One row per person, riskiest first.

        The columns are row, the household identifier, the variables, f (persons of the sample with
        the same values), r1 and r2 of the person's own values, and r_household.
        """
        table = self.table
        persons = table.persons
        frame = labels_of(persons.schema, persons.codes)
        frame.insert(0, "row", np.arange(persons.n))
        ids = pd.Series(table.ids[table.of_household]).infer_objects()
        frame.insert(1, table.schema.household, ids)
        frame = pd.concat([frame, self._own], axis=1)
        frame["r_household"] = self.r_household
        return frame.sort_values(
            ["r_household", "r1", "row"], ascending=[False, False, True], ignore_index=True
        )

    def monitored(self, run: Run) -> dict[str, np.ndarray]:
        """Quantities by which convergence of the run is judged, thinned like the risk."""
        return self.households.monitored(run)

    def warnings(self) -> list[str]:
        """Sentences on persons whose own risk is not known, and on weights that may be wrong."""
        of_weights = [] if self.weighted is None else self.weighted.warnings(self.population_size)
        if self.persons is not None:
            return of_weights
        return [
            *of_weights,
            "the risk of persons by their own values is not known, because these rules give no "
            "closed form for it; r1 and r2 of records.csv are empty, and r_household is the risk "
            "through the household",
        ]

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "sample": title_of(self.table),
            "households in the population": self.population_size,
            "sample uniques": self.households.sample_uniques,
            "tau_1": spread(self.households.tau1),
            "tau_2": spread(self.households.tau2),
            "ties": self.households.ties,
        }
        return Shown("HouseholdRisk", lines, self.household_table())


def household_risk(
    run: HouseholdsRun,
    population_size: int,
    *,
    ties: str = "on",
    thin: int | None = None,
    key: jax.Array | None = None,
    progress: bool = False,
) -> HouseholdRisk:
    """Evaluate the posterior of tau_1, tau_2 and the risk of each household and its persons.

    Parameters
    ----------
    run
        Chains of `NDPMPM` that kept its ``parameters``. Members may be coded relative to their
        head, if all are and not only those of some relationships: given the head, values and codes
        correspond one to one, so that the probabilities are those of the values. If the households
        have design weights (`weighted_households`), these determine the distribution of the
        households that are not in the sample.
    population_size
        Number N of households in the population, at least that of the sample.
    ties, thin, key, progress
        As for `population_risk`.

    Raises
    ------
    MicrodataError
        If a value is missing, the population is smaller than the sample, or a weight is below one.
    ValueError
        If the run is not of households, the model takes the sizes as given or codes only members of
        some relationships relative to their head, or an option is unknown or out of range.

    Notes
    -----
    P(possible) is 1 without rules. Under rules it is exact if they have a closed form; otherwise it
    is estimated for each draw from 8,192 simulated households of each size, with a relative
    standard error of sqrt((1 - p) / (8192 p)) for a size of which a share p is possible.

    Examples
    --------
    >>> model = bnp.NDPMPM(components=4, member_components=2)
    >>> run = bnp.sample(model, households, key=jax.random.key(0), **short)
    >>> bnp.household_risk(run, population_size=5_000).households.tau1.shape
    (2, 2)
    """
    check_kind(Run, "household_risk(run, population_size)", run=run)
    check_choice(TIES, ties=ties)
    key = run.key if key is None else typed_key(key)
    check_households(run.model, run.table, population_size)
    thin = checked_thin(thin, run.settings)
    key_unseen, key_possible, key_counts = Keys(key, 3)
    laws = Laws(sample_law(run))
    rest = laws if laws.run is run else Laws(unsampled_law(run))
    found = compositions_of(laws.run.table)
    units = _units(laws, rest, found, _num_persons(run.table, population_size), population_size)
    unseen: list[Any] = [None] * len(units)
    if ties != "off":
        simulated = simulated_unseen(laws, key_unseen)
        unseen = [np.concatenate(part) for part in zip(*simulated, strict=True)]
    generator = numpy_generator(key_counts)
    shape = shape_of_draws(run.parameters(thin))
    sums = [
        unit.sums(generator, cells, ties, shape, run.settings.superchain)
        for unit, cells in zip(units, unseen, strict=False)
    ]
    blocks = laws.blocks(key_possible, thin, progress)
    of_rest = blocks if rest is laws else rest.blocks(key_possible, thin, False)
    pairs = ((one, one) for one in blocks) if rest is laws else zip(blocks, of_rest, strict=True)
    for of_sample, of_others in pairs:
        for unit, sum_of in zip(units, sums, strict=True):
            sum_of.add(unit.evaluated(of_sample, of_others, sum_of.asked))
    risks = [
        unit.risk(laws.run, thin, ties, sum_of.figures())
        for unit, sum_of in zip(units, sums, strict=True)
    ]
    return HouseholdRisk(run, laws.run, found, risks[0], risks[1] if len(risks) > 1 else None)


def _num_persons(table: Households, population_size: int) -> int:
    """Persons of the population, if its households have as many as those of the sample."""
    if isinstance(table, WeightedHouseholds):
        return round(population_size * np.average(table.sizes, weights=table.weights))
    return round(population_size * table.num_persons / table.n)


def check_households(model: Any, table: Any, population_size: int) -> None:
    """Raise an error unless the risk of households can be evaluated; as `household_risk` does."""
    if not isinstance(model, NDPMPM) or not isinstance(table, Households):
        raise ValueError(
            "the risk of households needs a run of NDPMPM on Households; for single persons, call "
            "population_risk"
        )
    if model.sizes == "given":
        raise ValueError(
            'sizes: "given" leaves the sizes of households to the design of the sample, and the '
            'risk needs those of the population; use sizes="random"'
        )
    if any(len(one) > 2 for one in model.relative if not isinstance(one, str)):
        raise ValueError(
            "relative: the risk of households is not known if values are relative to heads for "
            "some relationships only; name the variables alone, or leave relative out"
        )
    table.require_complete("the risk of households")
    for name in (*table.schema.table.variables, table.schema.household):
        if name in _TAKEN:
            raise MicrodataError(
                "records.csv gets a column of this name; rename the column", column=name
            )
    check_number(population_size=population_size)
    if not table.n <= population_size <= _MAX_POPULATION:
        raise MicrodataError(
            f"the population size {population_size:,} is not between the sample's {table.n:,} "
            "households and 2^53; give the number of households of the population"
        )
    if isinstance(table, WeightedHouseholds):
        table.require_counts()


class _Unit(NamedTuple):
    """Units whose risk is evaluated: households or persons."""

    table: Microdata
    """The units of the sample."""
    size: int
    """Number of units in the population."""
    log_probability: LogProbability
    """Probabilities of the cells of the table for a unit of the sample."""
    of_rest: LogProbability
    """Probabilities of the same cells for a unit that is not in the sample."""
    prior: Prior
    """Prior of the correction for overdispersion."""

    def evaluated(self, sample: Parameters, rest: Parameters, asked: np.ndarray) -> Block:
        """Evaluate the cells at a block of draws of both distributions.

        `asked` has the indices of the cells that are needed for units not in the sample.
        """
        log_p = self.log_probability(sample.draws, sample.log_possible)[: sample.number]
        log_q = log_p
        if rest is not sample:
            log_q = self.of_rest(rest.draws, rest.log_possible)[: rest.number]
        of_both = (LogProbabilities(x[:, asked], None) for x in (log_p, log_q))
        return Block(log_p, np.zeros((len(log_p), 1)), *of_both)

    def sums(
        self,
        generator,
        unseen: np.ndarray | None,
        ties: str,
        shape: tuple[int, int],
        superchain: int,
    ) -> RiskSums:
        """Make the sums to which blocks of so many (chains, draws) are added."""
        cells = self.table.tabulated
        posterior = None
        if unseen is not None:
            posterior = OverdispersionPosterior(cells.counts, unseen, prior=self.prior)
        num_new = self.size - self.table.n
        return RiskSums(
            cells, num_new, generator, posterior, ties == "on", all_records=True, shape=shape,
            superchain=superchain,
        )  # fmt: skip

    def risk(self, run: Any, thin: int, ties: str, figures: dict[str, Any]) -> PopulationRisk:
        """Risk of the units as that of records, from the draws of a run on households."""
        of_units = replace(run, table=self.table, conditions=None)
        return PopulationRisk(of_units, self.size, "exact", thin=thin, ties=ties, **figures)


def _units(
    laws: Laws, rest: Laws, found: Compositions, num_persons: int, population_size: int
) -> list[_Unit]:
    """Households, and their persons if their own risk has a closed form.

    The distributions are those of the sample, and of what is not in it.
    """
    table, persons = laws.run.table, laws.run.table.persons
    chosen, log_orders = table.select(found.first), found.log_orders
    of_sample, of_rest = (one.of_households(chosen, log_orders) for one in (laws, rest))
    units = [_Unit(found.records, int(population_size), of_sample, of_rest, OF_COMPOSITIONS)]
    if knows_persons(laws.data):
        codes = persons.tabulated.codes
        of_sample, of_rest = (one.of_persons(codes) for one in (laws, rest))
        units.append(_Unit(persons, num_persons, of_sample, of_rest, OF_RECORDS))
    return units
