"""Protection of a sample: recodings and suppressions until its risk meets an agency's limits.

Both are chosen by a greedy search: recodings by the loss of information (`recoding`) relative to
the reduction of the risk, and suppressions so that there are few of them (`suppression`). The risk
is computed from the given posterior draws (`protected_risks`); no chains are run again. The search
ends when the verdict on the file is yes (`verdict`).

Global recoding and local suppression are those of Hundepool et al. 2012 (Statistical Disclosure
Control, doi:10.1002/9781118348239, chapter 3).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property

import jax
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bnp_models.data.display import Shown, displayed, spread, title_of
from bnp_models.data.microdata import Microdata, SmallCells, small_cells
from bnp_models.data.recoding import Recoding
from bnp_models.data.schema import text_of, unknown_variable
from bnp_models.inference.run import RecordsRun
from bnp_models.inference.weighting import sample_law
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.options import check_choice, typed_key
from bnp_models.risk.anonymity import Anonymity, Reached, missed, rows_of
from bnp_models.risk.coarsening import hierarchies_of
from bnp_models.risk.overdispersion import TIES
from bnp_models.risk.protected_risks import ProtectedRisks, patterns
from bnp_models.risk.recoding import (
    Recoded,
    Step,
    asked_steps,
    cheapest,
    importance_of,
    ordered_variables,
)
from bnp_models.risk.released import Released, release
from bnp_models.risk.suppression import Suppressed, suppress, suppress_rare
from bnp_models.risk.verdict import Limits, Verdict, figures_of_draws, judge

SCAN_DRAWS, NUM_DRAWS = 50, 200
"""Draws of a run at which recodings are compared, and at which the result is evaluated."""

# Records with less than this share of the risk are left out when recodings are compared.
_LEFT_OUT = 1e-3

_PROTECT = 0x50524F54


@displayed
@dataclasses.dataclass(frozen=True, eq=False)
class FileRisk:
    """Risk of a file, recoded and with values suppressed.

    Examples
    --------
    >>> before = bnp.protect(run, 5_000, max_tau1=2, max_suppressed=0.2).before
    >>> before.sample_uniques > 0
    True
    """

    tau1: np.ndarray
    """(chains, draws) draws of the number of records that are unique in the population."""
    tau2: np.ndarray
    """(draws,) draws of the sum over sample uniques of 1/F, F the persons that a record matches."""
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
        return judge(tau1, self.r1, limits, usable, why, r1_error=self.r1_error)


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
    """The original sample."""
    population_size: int
    limits: Limits
    recoded: Recoded
    """The recoded sample, without suppressions."""
    recodings: tuple[Step, ...]
    """Recodings in the order in which they were made."""
    suppressed: np.ndarray
    """(n, J') bool: values of the recoded sample that are suppressed."""
    before: FileRisk
    after: FileRisk
    anonymity: tuple[Reached, ...] = ()
    """Targets of k-anonymity, and the records that miss them before and after."""

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
            "values suppressed": int(self.suppressed.sum()),
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
        for one in self.anonymity:
            said = "every record meets this limit"
            if one.after:
                said = f"{one.after:,} of {self.table.n:,} records do not meet this limit"
                verdict = verdict._replace(release=False)
            target = Anonymity(one.k, one.size, one.variables)
            reason = f"{target} must have {one.k:,} records: {said}"
            verdict = verdict._replace(why="; ".join(filter(None, [verdict.why, reason])))
        return verdict

    @property
    def coarsening(self) -> Recoding:
        """The recoding as a whole."""
        return self.recoded.coarsening

    def frame(self) -> pd.DataFrame:
        """Key variables of the protected file as labels, None where suppressed."""
        table = self.coarsening.coarser(self.table)
        codes = np.where(self.suppressed, -1, table.codes)
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
            self.table, self.recoded, self.suppressed, self.frame(), frame, carry, link or {}
        )

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
        rows, columns = np.nonzero(self.suppressed)
        schema = self.table.schema
        variables = [self.coarsening.variables[j] for j in columns]
        old = [
            text_of(schema.levels[j][self.table.codes[row, j]])
            for row, j in zip(rows, variables, strict=True)
        ]
        names = [schema.variables[j] for j in variables]
        return pd.DataFrame({"row": rows, "column": names, "old": old})

    def estimate(
        self, run: RecordsRun, *, ties: str = "on", key: jax.Array | None = None
    ) -> FileRisk:
        """Estimate the risk of the protected file by chains on the recoded sample.

        Parameters
        ----------
        run
            Chains fitted to ``coarsening.coarser(table)``.
        ties
            Whether the correction for overdispersion is used, "on" or "off".
        key
            By default one that `run` set aside.
        """
        check_choice(TIES, ties=ties)
        key = jax.random.fold_in(run.key if key is None else typed_key(key), _PROTECT)
        risks = ProtectedRisks(
            run, self.population_size, overdispersion=ties == "on", num_draws=NUM_DRAWS, key=key
        )  # fmt: skip
        same = Recoded.unchanged(risks.table).coarsening
        return _file_risk(risks, same, self.suppressed, self.after.loss)


def protect(
    run: RecordsRun,
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
        As for `population_risk`; the run is of records, not of a table of cells.
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
        (n,) stratum of each record: k-anonymity is then asked for within each of them.
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
    table = sample_law(run).table
    if not isinstance(table, Microdata):
        raise ValueError("protection needs single records, not a table of cell counts")
    check_names(table, importance or {}, (*ordered, *no_merge))
    for target in targets:
        target.check(table.schema)
    stratum = None if strata is None else pd.factorize(np.asarray(strata), use_na_sentinel=False)[0]
    if stratum is not None and stratum.shape != (table.n,):
        raise ValueError(f"strata has shape {stratum.shape}, not one for each of {table.n} records")
    weight = importance_of(table.schema, importance or {})
    key = jax.random.fold_in(run.key if key is None else typed_key(key), _PROTECT)
    key_scan, key_result = Keys(key, 2)
    scan, risks = (
        ProtectedRisks(run, population_size, overdispersion=ties == "on", num_draws=number, key=of)
        for number, of in ((SCAN_DRAWS, key_scan), (NUM_DRAWS, key_result))
    )
    recoded, recodings = asked_steps(
        recode, Recoded.unchanged(table, hierarchies_of(run.model), no_merge), weight
    )
    in_order = ordered_variables(table.schema, ordered)
    most = int(max_suppressed * table.n)
    while True:
        few, rare = _suppress_rare(recoded, targets, stratum, weight, most)
        found = Suppressed(rare, few)
        if few and limits.given:
            found = suppress(risks, recoded.coarsening, limits, weight[recoded.kept], most, rare)
        step = None
        if not few:
            step = _next_towards(recoded, targets, stratum, weight, in_order)
        elif not found.met:
            step = _next_step(scan, recoded, limits, weight, in_order)
        if step is None:
            break
        recoded, made = step
        recodings += made
    unchanged = Recoded.unchanged(table)
    nothing = np.zeros((table.n, table.num_variables), bool)
    loss = recoded.loss(weight) + float(recoded.costs(weight)[found.mask].sum()) / table.n
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
                **target._asdict(), before=int(missed(table, target, nothing, stratum).sum()),
                after=int(missed(recoded.records, target, found.mask, stratum).sum()),
            )
            for target in targets
        ),
    )  # fmt: skip


def check_names(table: Microdata, importance: Mapping[str, float], ordered: Sequence[str]) -> None:
    """Raise MicrodataError unless these are variables of the table."""
    for name in (*importance, *ordered):
        if name not in table.schema.variables:
            raise unknown_variable(name, table.schema.variables, "variable")


def _suppress_rare(
    recoded: Recoded,
    targets: Sequence[Anonymity],
    stratum: np.ndarray | None,
    weight: np.ndarray,
    most: int,
) -> tuple[bool, np.ndarray]:
    """Choose values (n, J') whose suppression gives k-anonymity.

    The first result is whether they are values of at most `most` records. If more records are
    needed, the values are those of the `most` records whose combinations are rarest.
    """
    table = recoded.records
    mask = suppress_rare(table, targets, weight[recoded.kept], stratum)
    if mask.any(axis=1).sum() <= most:
        return True, mask
    alike = rows_of(table, stratum).alike(range(table.num_variables))
    order = np.lexsort([alike, ~mask.any(axis=1)])
    mask[order[most:]] = False
    return False, mask


def _next_towards(
    recoded: Recoded,
    targets: Sequence[Anonymity],
    stratum: np.ndarray | None,
    weight: np.ndarray,
    ordered: np.ndarray,
) -> tuple[Recoded, list[Step]] | None:
    """The step with the least loss of information for each record that then meets k-anonymity.

    None if no step makes more records meet it.
    """

    def number(recoded):
        """Records that miss a target."""
        nothing = np.zeros(recoded.records.codes.shape, bool)
        found = [missed(recoded.records, one, nothing, stratum) for one in targets]
        return np.any(found, axis=0).sum()

    now = number(recoded)
    found = ((now - number(step[-1]), *step) for step in recoded.steps(ordered))
    return cheapest(recoded, weight, (one for one in found if one[0] > 0))


def _next_step(
    scan: ProtectedRisks, recoded: Recoded, limits: Limits, weight: np.ndarray, ordered: np.ndarray
) -> tuple[Recoded, list[Step]] | None:
    """Step with the least loss of information for its reduction of risk; None if none is left."""
    rows = np.flatnonzero(scan.sharing(recoded.coarsening) == 1)
    r1 = scan.of_rows(recoded.coarsening, rows)[0]
    order = np.argsort(-r1.mean(axis=0))
    carried = np.cumsum(r1.mean(axis=0)[order])
    count = int(np.searchsorted(carried, (1 - _LEFT_OUT) * carried[-1])) + 1 if len(rows) else 0
    rows = np.sort(rows[order[:count]])
    now = _above(scan, r1, limits)

    def gains():
        for j, merges, candidate in recoded.steps(ordered):
            alone = rows[scan.uniques(candidate.coarsening, rows)]
            if scan.listable(candidate.coarsening, alone):
                left = _above(scan, scan.of_rows(candidate.coarsening, alone)[0], limits)
                if now - left > _LEFT_OUT * now:
                    yield now - left, j, merges, candidate

    return cheapest(recoded, weight, gains())


def _above(scan: ProtectedRisks, r1: np.ndarray, limits: Limits) -> float:
    """Risk that recodings must reduce, of r_1 (draws, m): tau_1, or the excess of records over
    their own limit."""
    if limits.max_tau1 is not None:
        return float(r1.mean(axis=0).sum())
    return float(np.maximum(scan.upper_means(r1) - limits.max_risk, 0).sum())


def _file_risk(
    risks: ProtectedRisks, coarsening: Recoding, suppressed: np.ndarray, loss: float
) -> FileRisk:
    """Risk of a file after a coarsening and suppressions (n, J')."""
    n = len(suppressed)
    sharing, mean, error = np.full(n, n), np.zeros(n), np.zeros(n)
    columns, rows, tau2 = [], [], np.zeros(risks.num_draws)
    for pattern, where in patterns(suppressed):
        if pattern.all():
            continue
        key = coarsening.without(pattern)
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
    return FileRisk(tau1, tau2, mean, error, sharing, loss, risks.superchain)
