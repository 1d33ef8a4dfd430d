"""Protection of a sample: recodings and suppressions until its risk meets an agency's limits.

Both are chosen by a greedy search: recodings by the loss of information (`recoding`) relative to
the reduction of the risk, and suppressions so that there are few of them (`suppression`). The risk
is computed from the given posterior draws (`protected_risks`); no chains are run again. The search
ends when the verdict on the file is yes (`verdict`).

Files of persons within households are protected by the risk of the households
(`bnp_models.risk.protected_households`): recodings change the variables of their persons, and a
variable is suppressed in all persons of a household together.

Global recoding and local suppression are those of Hundepool et al. 2012 (Statistical Disclosure
Control, doi:10.1002/9781118348239, chapter 3).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import jax
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.microdata import Microdata, SmallCells, small_cells
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import text_of, unknown_variable
from bnp_models.inference.run import HouseholdsRun, RecordsRun, is_of_households
from bnp_models.inference.weighting import sample_law
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.options import check_choice, typed_key
from bnp_models.risk.anonymity import Anonymity, Reached
from bnp_models.risk.coarsening import hierarchies_of
from bnp_models.risk.overdispersion import TIES
from bnp_models.risk.protected_households import ProtectedHouseholds
from bnp_models.risk.protected_risks import ProtectedRisks, patterns
from bnp_models.risk.recoding import (
    Recoded,
    Step,
    asked_steps,
    cheapest,
    importance_of,
    ordered_variables,
)
from bnp_models.risk.recoding_search import RecodingSearch
from bnp_models.risk.released import Released, release
from bnp_models.risk.suppression import Suppressed, suppress
from bnp_models.risk.units import Targets, Units, by_record
from bnp_models.risk.verdict import Limits, Verdict, figures_of_draws, judge

SCAN_DRAWS, NUM_DRAWS = 50, 200
"""Draws of a run at which recodings are compared, and at which the result is evaluated."""

SCAN_SHARES = 2
"""Draws at which shares of possible households are estimated when recodings are compared."""

_PROTECT = 0x50524F54


@displayed
@dataclasses.dataclass(frozen=True, eq=False)
class FileRisk:
    """Risk of a file, recoded and with values suppressed; of its records, or of its households.

    Examples
    --------
    >>> before = bnp.protect(run, 5_000, max_tau1=2, max_suppressed=0.2).before
    >>> before.sample_uniques > 0
    True
    """

    tau1: np.ndarray
    """(chains, draws) draws of the number of records that are unique in the population."""
    tau2: np.ndarray
    """(draws,) draws of the sum over sample uniques of 1/F, F the persons that a record matches,
    or the households that a household matches."""
    r1: np.ndarray
    """(n,) probability of each record to be unique in the population."""
    r1_error: np.ndarray
    """(n,) Monte Carlo standard error of each `r1`."""
    sharing: np.ndarray
    """(n,) number of records of the sample that have the remaining values of each record, itself
    included."""
    loss: float
    """Information that was lost, in bits a record."""
    superchain: int = 1
    """Number of consecutive chains that started at the same point."""
    unit: str = "record"
    """What is at risk: "record" or "household"."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "sample uniques": self.sample_uniques,
            "tau_1": spread(self.tau1),
            "tau_2": spread(self.tau2),
            "bits lost": f"{self.loss:.3g} a record",
        }
        return Shown("FileRisk", lines)

    @property
    def sample_uniques(self) -> int:
        """Number of records whose remaining values no other record has."""
        return int((self.sharing == 1).sum())

    @cached_property
    def anonymity(self) -> list[SmallCells]:
        """Numbers of records whose remaining values fewer than 2, 3 and 5 records have."""
        return small_cells(self.sharing, np.ones_like(self.sharing))

    def judge(self, limits: Limits, usable: bool = True, why: str = "") -> Verdict:
        """Compare the risk with limits; arguments as of `verdict.judge`."""
        tau1 = figures_of_draws(self.tau1, self.superchain)
        return judge(tau1, self.r1, limits, usable, why, r1_error=self.r1_error, unit=self.unit)


@displayed
@dataclasses.dataclass(frozen=True, eq=False)
class Protection:
    """Protected form of a sample, and the steps that led to it.

    Examples
    --------
    >>> found = bnp.protect(run, 5_000, max_tau1=2, max_suppressed=0.2)
    >>> found.met, list(found.suppressions())
    (True, ['row', 'column', 'old'])
    """

    table: Microdata
    """The original sample; of households, their persons."""
    population_size: int
    limits: Limits
    recoded: Recoded
    """The recoded sample, without suppressions."""
    recodings: tuple[Step, ...]
    """Recodings in the order in which they were made."""
    suppressed: np.ndarray
    """(n, J') bool: values of the recoded sample that are suppressed; of households, those of the n
    households, whose persons all lose them."""
    before: FileRisk
    after: FileRisk
    anonymity: tuple[Reached, ...] = ()
    """Targets of k-anonymity, and the records that miss them before and after."""
    of_household: np.ndarray | None = None
    """(N,) household of each person, if the units are households."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {
            "limits": ", ".join(
                f"{name} {limit:g}" for name, limit in self.limits._asdict().items()
                if limit is not None
            ) or None,
            "k-anonymity": ", ".join(f"{one.k}" for one in self.anonymity) or None,
            "met": "yes" if self.met else "no",
            "recodings": len(self.recodings),
            "values suppressed": int(self.suppressed_values.sum()),
            "tau_1 before": spread(self.before.tau1),
            "tau_1 after": spread(self.after.tau1),
        }  # fmt: skip
        return Shown(f"Protection of {title_of(self.table)}", lines)

    @property
    def met(self) -> bool:
        """Whether the protected file meets the limits."""
        return self.judge().release is True

    def judge(self, usable: bool = True, why: str = "") -> Verdict:
        """Verdict on the protected file by all that was asked for; arguments as of `judge`."""
        verdict = Verdict(True, "", self.limits, None)
        if self.limits.given:
            verdict = self.after.judge(self.limits, usable, why)
        unit = self.after.unit
        for one in self.anonymity:
            said = f"every {unit} meets this limit"
            if one.after:
                number = len(self.suppressed)
                said = f"{one.after:,} of {number:,} {unit}s do not meet this limit"
                verdict = verdict._replace(release=False)
            target = Anonymity(one.k, one.size, one.variables)
            reason = f"{target} must have {one.k:,} {unit}s: {said}"
            verdict = verdict._replace(why="; ".join(filter(None, [verdict.why, reason])))
        return verdict

    @property
    def coarsening(self) -> Recoding:
        """The recoding as a whole."""
        return self.recoded.coarsening

    @property
    def suppressed_values(self) -> np.ndarray:
        """(n, J') bool: values of the records, or of the persons of households."""
        return by_record(self.suppressed, self.of_household)

    def frame(self) -> pd.DataFrame:
        """Key variables of the protected file as labels, None where suppressed."""
        table = self.coarsening.coarser(self.table)
        codes = np.where(self.suppressed_values, -1, table.codes)
        return Microdata(table.schema, codes).to_frame()

    def released(
        self,
        frame: pd.DataFrame,
        *,
        carry: Sequence[str] = (),
        link: Mapping[str, str] | None = None,
    ) -> Released:
        """Make the file that is released, and measure what can be read back from it.

        Parameters
        ----------
        frame
            (n, any) the original file. Its columns that are neither key variables, carried nor
            linked are left out.
        carry
            Columns that are released as they are.
        link
            By column that is changed as a key variable is, this variable: its values are suppressed
            and merged together with those of the variable.
        """
        return release(
            self.table, self.recoded, self.suppressed_values, self.frame(), frame, carry,
            link or {}, self.of_household,
        )  # fmt: skip

    def apply(
        self,
        frame: pd.DataFrame,
        *,
        carry: Sequence[str] = (),
        link: Mapping[str, str] | None = None,
    ) -> pd.DataFrame:
        """Return the protected file of the original one; parameters as of `released`."""
        return self.released(frame, carry=carry, link=link).frame

    def suppressions(self) -> pd.DataFrame:
        """One row per suppressed value: row, column and old, its label in the sample."""
        rows, columns = np.nonzero(self.suppressed_values)
        schema = self.table.schema
        variables = [self.coarsening.variables[j] for j in columns]
        old = [
            text_of(schema.levels[j][self.table.codes[row, j]])
            for row, j in zip(rows, variables, strict=True)
        ]
        names = [schema.variables[j] for j in variables]
        return pd.DataFrame({"row": rows, "column": names, "old": old})

    def estimate(
        self, run: RecordsRun | HouseholdsRun, *, ties: str = "on", key: jax.Array | None = None
    ) -> FileRisk:
        """Estimate the risk of the protected file by chains on the recoded sample.

        Parameters
        ----------
        run
            Chains fitted to ``coarsening.coarser(table)``, or to the households of
            `recoded_households`.
        ties
            Whether the correction for overdispersion is used, "on" or "off".
        key
            By default one that `run` set aside.
        """
        check_choice(TIES, ties=ties)
        key = jax.random.fold_in(run.key if key is None else typed_key(key), _PROTECT)
        risks = _risks_of(run)(
            run, self.population_size, overdispersion=ties == "on", num_draws=NUM_DRAWS, key=key
        )
        same = Recoded.unchanged(risks.table).coarsening
        return _file_risk(risks, same, self.suppressed, self.after.loss)


def protect(
    run: RecordsRun | HouseholdsRun,
    population_size: int,
    *,
    max_tau1: float | None = None,
    max_risk: float | None = None,
    recode: Sequence[str] = (),
    max_suppressed: float = 0.05,
    importance: Mapping[str, float] | None = None,
    ordered: Sequence[str] = (),
    no_merge: Sequence[str] = (),
    k: int | Sequence[Anonymity] = (),
    strata: ArrayLike | None = None,
    ties: str = "on",
    key: jax.Array | None = None,
) -> Protection:
    """Recode a sample, and suppress values of its records, until its risk meets limits.

    Parameters
    ----------
    run, population_size
        As for `population_risk`; the run is of records, not of a table of cells. Or as for
        `household_risk`: limits, shares and k-anonymity are then about households, and a variable
        is suppressed in all persons of a household.
    max_tau1
        Limit of tau_1: the upper end of its 95% interval must not exceed it.
    max_risk
        Limit of the probability of each record to be unique in the population.
    recode
        Recodings that are made in any case, before all others: statements as for `coarsen`.
    max_suppressed
        Largest share of the records in which values may be suppressed. Variables are recoded until
        this share is enough; each recoding is the one with the least loss of information for its
        reduction of tau_1.
    importance
        Weight of one bit of information lost in a variable, by name of the variable; 1 by default.
    ordered
        Variables whose neighbouring levels may be merged, in addition to those whose labels all
        begin with a number. For other variables, the rarest level is merged with another level. If
        the model of the run has groups of a variable's levels, all levels are replaced by their
        groups, and then the groups by larger groups.
    no_merge
        Variables whose levels are not merged; they may still be dropped.
    k
        Number of records that each combination of the key variables must have, or targets of
        k-anonymity for sets of them (`bnp.risk.Anonymity`). A record with suppressed values counts
        the records that have its other values, as they were before any value was suppressed.
    strata
        (n,) stratum of each record: k-anonymity is then asked for within each of them. All persons
        of a household are in one stratum.
    ties
        As for `population_risk`: "on" evaluates with the correction for overdispersion; "off" and
        "sensitivity" do not.
    key
        By default one that `run` set aside.

    Returns
    -------
    protection
        The protected file; if the limits cannot be met, the one that comes closest to them.

    Raises
    ------
    MicrodataError
        If a statement cannot be read, or a variable is unknown.
    ValueError
        As `population_risk`; if neither a limit nor `k` is given, `k` cannot be asked of these
        variables, or the sample is a table of cells.

    Examples
    --------
    >>> bnp.protect(run, 5_000, k=3, max_suppressed=0.2).met
    True
    >>> found = bnp.protect(run, 5_000, max_tau1=2, max_suppressed=0.2)
    >>> int(found.frame().isna().sum().sum()) == int(found.suppressed.sum())
    True
    """
    check_choice(TIES, ties=ties)
    limits = Limits(max_tau1, max_risk)
    targets = (Anonymity(int(k)),) if isinstance(k, int | np.integer) else tuple(k)
    if not limits.given and not targets:
        raise ValueError("give max_tau1, max_risk or k, or several of them")
    units = Units.of(sample_law(run).table)
    table = units.table
    check_names(table, importance or {}, (*ordered, *no_merge))
    for target in targets:
        target.check(table.schema)
    wanted = Targets(targets, units.strata(strata), units)
    weight = importance_of(table.schema, importance or {})
    key = jax.random.fold_in(run.key if key is None else typed_key(key), _PROTECT)
    key_scan, key_result = Keys(key, 2)
    made = partial(_risks_of(run), run, population_size, overdispersion=ties == "on")
    scan = made(num_draws=SCAN_DRAWS, key=key_scan, num_shares=SCAN_SHARES)
    risks = made(num_draws=NUM_DRAWS, key=key_result)
    unchanged = Recoded.unchanged(table, hierarchies_of(run.model), no_merge, units.needed)
    recoded, recodings = asked_steps(recode, unchanged, weight)
    in_order = ordered_variables(table.schema, ordered)
    search = RecodingSearch(scan, units, limits, weight, in_order)
    most = int(max_suppressed * units.number)
    while True:
        few, rare = wanted.suppress(recoded, weight, most)
        found = Suppressed(rare, few)
        if few and limits.given:
            costs = units.costs(weight[recoded.kept])
            found = suppress(risks, recoded.coarsening, limits, costs, most, rare)
        step = None
        if not few:
            step = _next_towards(recoded, wanted, weight, in_order)
        elif not found.met:
            step = search.next(recoded)
        if step is None:
            break
        recoded, steps = step
        recodings += steps
    nothing = np.zeros((units.number, table.num_variables), bool)
    lost = by_record(found.mask, units.of_household)
    loss = recoded.loss(weight) + float(recoded.costs(weight)[lost].sum()) / table.n
    return Protection(
        table=table,
        population_size=int(population_size),
        limits=limits,
        recoded=recoded,
        recodings=tuple(recodings),
        suppressed=found.mask,
        before=_file_risk(risks, unchanged.coarsening, nothing, 0.0),
        after=_file_risk(risks, recoded.coarsening, found.mask, loss),
        anonymity=tuple(
            Reached(
                **target._asdict(), before=int(wanted.missed(table, target, nothing).sum()),
                after=int(wanted.missed(recoded.records, target, found.mask).sum()),
            )
            for target in targets
        ),
        of_household=units.of_household,
    )  # fmt: skip


def _risks_of(run: RecordsRun | HouseholdsRun) -> type[ProtectedRisks]:
    """What evaluates the risks of the units of a run."""
    return ProtectedHouseholds if is_of_households(run) else ProtectedRisks


def check_names(table: Microdata, importance: Mapping[str, float], ordered: Sequence[str]) -> None:
    """Raise MicrodataError unless these are variables of the table."""
    for name in (*importance, *ordered):
        if name not in table.schema.variables:
            raise unknown_variable(name, table.schema.variables, "variable")


def _next_towards(
    recoded: Recoded, wanted: Targets, weight: np.ndarray, ordered: np.ndarray
) -> tuple[Recoded, list[Step]] | None:
    """The step with the least loss of information for each unit that then meets k-anonymity.

    None if no step makes more units meet it.
    """
    now = wanted.number_missed(recoded)
    found = ((now - wanted.number_missed(step[-1]), *step) for step in recoded.steps(ordered))
    return cheapest(recoded, weight, (one for one in found if one[0] > 0))


def _file_risk(
    risks: ProtectedRisks, coarsening: Recoding, suppressed: np.ndarray, loss: float
) -> FileRisk:
    """Risk of a file after a coarsening, and suppressions (n, J') of its units."""
    n = len(suppressed)
    sharing, mean, error = np.full(n, n), np.zeros(n), np.zeros(n)
    columns, rows, tau2 = [], [], np.zeros(risks.num_draws)
    for pattern, where in patterns(suppressed):
        if (key := risks.without(coarsening, pattern)) is None:
            continue
        sharing[where] = risks.sharing(key)[where]
        alone = where[sharing[where] == 1]
        r1, _ = risks.of_rows(key, alone)
        tau2 += np.sum(1 / (1 + risks.draw_joining(key, alone)), axis=1)
        mean[alone], error[alone] = r1.mean(axis=0), risks.errors(r1)
        columns.append(r1)
        rows.append(alone)
    none = np.zeros((risks.num_draws, 0))
    r1 = np.concatenate([none, *columns], axis=1)
    tau1 = risks.draw_tau1(r1, np.concatenate([np.zeros(0, int), *rows]))
    return FileRisk(tau1, tau2, mean, error, sharing, loss, risks.superchain, risks.unit)
