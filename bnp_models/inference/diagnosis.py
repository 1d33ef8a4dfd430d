"""Diagnosis of a run: convergence, modes and warnings, computed once and used by all pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.messages import listed
from bnp_models.inference.convergence import (
    MAX_RHAT,
    Converged,
    Evaluated,
    Figures,
    figures_by_name,
    monitored,
)
from bnp_models.inference.modes import Modes, find_modes
from bnp_models.inference.run import Run
from bnp_models.inference.warnings import (
    design_warnings,
    draws_warnings,
    growth_warnings,
    run_warnings,
    stopping_warnings,
)


@dataclass(frozen=True, eq=False)
@displayed
class Diagnosis:
    """Convergence of chains; each member is computed when it is first read, and then kept.

    Parameters
    ----------
    draws
        Quantities by which convergence is judged, each (chains, draws).
    run
        The run that made these draws; None for chains of another sampler.
    evaluated
        Result computed from the run's draws: a `PopulationRisk` or `Margins`.

    Examples
    --------
    >>> diagnosis = bnp.results.Diagnosis.of(run, risk)
    >>> sorted(diagnosis.figures["tau1"])
    ['ess_bulk', 'ess_tail', 'rhat']
    """

    draws: dict[str, np.ndarray]
    run: Run | None = None
    evaluated: Evaluated | None = None

    @classmethod
    def of(cls, run: Run, evaluated: Evaluated | None = None) -> "Diagnosis":
        """Diagnosis of a run and of the result that was computed from its draws."""
        return cls(monitored(run, evaluated), run, evaluated)

    @cached_property
    def figures(self) -> dict[str, Figures]:
        """R-hat and effective sample sizes of every quantity; see `diagnose`."""
        return self._figures_of(self.draws)

    def _figures_of(self, draws: dict[str, np.ndarray]) -> dict[str, Figures]:
        """Convergence figures of draws, given the superchains of the run and `share`."""
        superchain = 1 if self.run is None else self.run.settings.superchain
        return figures_by_name(draws, superchain, self.share)

    @property
    def share(self) -> float:
        """Part of the reported quantities that the results take from the chains: 1 for all."""
        return 1.0 if self.evaluated is None else self.evaluated.share

    @cached_property
    def modes(self) -> Modes:
        """Modes of the posterior in which the chains are."""
        return find_modes(self.draws, self.figures)

    @cached_property
    def missed(self) -> list[str]:
        """Figures that miss the run's target (`Converged`), in words."""
        target = None if self.run is None or self.run.until is None else self.run.until.target
        if not isinstance(target, Converged):
            return []
        sentences = target.missed(self.draws, self.figures)
        if not sentences and target.quantities is not None and self.run is not None:
            sentences = target.missed_by(self.run, target.quantities(self.run))
        return sentences

    @cached_property
    def minutes_needed(self) -> tuple[float, float] | None:
        """Minutes that a run from the start takes to its target, from and to; None: unknown."""
        if self.run is None or self.run.until is None:
            return None
        target, spent = self.run.until.target, sum(self.run.seconds.values()) / 60
        if not isinstance(target, Converged):
            return None
        times = target.forecast(self.draws, self.figures, self._figures_of)
        if times is None:
            return None
        # All draws count in the first round, and three quarters of them later.
        more = 4 / 3 if self.run.until.in_first(self.run.settings) else 1
        low, high = (spent * max(1, more * factor) for factor in times)
        return low, high

    @cached_property
    def reached(self) -> bool | None:
        """Whether the run ended because its target was reached; None if it had no target."""
        if self.run is None or self.run.until is None:
            return None
        if isinstance(self.run.until.target, Converged):
            return not self.missed
        return bool(self.run.until.target(self.run))

    def verdict(self, name: str, misfits: Sequence[str] = ()) -> tuple[bool, str]:
        """Whether a quantity can be used, and a sentence that says why.

        Parameters
        ----------
        name
            Name of the quantity, one of `draws`.
        misfits
            Signs that the model does not fit, in words.
        """
        values, figures = self.draws[name], self.figures[name]
        target = Converged(MAX_RHAT)
        against = target.missed({name: values}, {name: figures}) + list(misfits)
        known = name == "tau1" and getattr(self.evaluated, "is_known", False)
        if figures["rhat"] is None and not against and not known:
            # If all draws are equal, only their number shows whether the quantity can vary.
            chains = len(values)
            if chains == 1 or values.size < target.least_ess(chains):
                against = [
                    f"it is {values.flat[0]:g} in all {counted(values.size, 'draw')} of "
                    f"{counted(chains, 'chain')}, which are too few to tell whether it varies"
                ]
        if against:
            return False, f"{name} should not be used: {listed(against)}"
        if figures["rhat"] is None:
            return True, f"{name} can be used: it is {values.flat[0]:g} in every draw"
        return True, (
            f"{name} can be used: the chains agree on it (R-hat {figures['rhat']:.3f}, "
            f"{figures['ess_bulk']:,.0f} effective draws), and the checks see no misfit"
        )

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences that a methodologist should know before using the figures."""
        sentences = draws_warnings(self.draws, self.figures, self.modes, self.share)
        run = self.run
        if run is None:
            return sentences
        if run.until is not None and not self.reached:
            sentences = stopping_warnings(run, self.missed, self.minutes_needed) + sentences
        sentences = design_warnings(run) + sentences + run_warnings(run) + run.model.warnings(run)
        if self.evaluated is not None:
            sentences += self.evaluated.warnings()
        return sentences + growth_warnings(run)

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        frame = pd.DataFrame(self.figures).T.reset_index(names="quantity")
        lines = {"modes": self.modes.verdict}
        return Shown(f"Diagnosis: {counted(len(frame), 'quantity', 'quantities')}", lines, frame)


def diagnose(
    chains: Run | Mapping[str, np.ndarray], evaluated: Evaluated | None = None
) -> Diagnosis:
    """Convergence of chains and warnings: all that is known about whether they can be used.

    Parameters
    ----------
    chains
        A run; or quantities of another sampler by name, each (chains, draws), of which
        "log_likelihood" and "components" are those by which modes are found.
    evaluated
        Result computed from the run's draws. With a `PopulationRisk`, tau1 is among the
        quantities, and those of the run are thinned to the draws at which it was evaluated; with
        the `Margins` of `level_margins`, the three on which the chains agree least.

    Returns
    -------
    diagnosis
        `figures`: for each quantity "rhat" (rank-normalised, split; nested if there are
        superchains), "ess_bulk" and "ess_tail"; None if it is undefined, with fewer than 4 draws,
        constant draws, or, for R-hat, one chain. `warnings`: sentences for the person who decides
        whether to use the figures. `modes`, `reached` and more are computed when they are read.

    Raises
    ------
    TypeError
        If `chains` are neither.

    Examples
    --------
    >>> diagnosis = bnp.diagnose(run, risk)
    >>> sorted(diagnosis.figures["tau1"])
    ['ess_bulk', 'ess_tail', 'rhat']
    >>> any("too few classes" in sentence for sentence in diagnosis.warnings)
    True
    >>> diagnosis.modes.number is None, diagnosis.reached is None
    (True, True)
    """
    if isinstance(chains, Mapping):
        return Diagnosis({name: np.asarray(values) for name, values in chains.items()})
    check_kind(Run, "diagnose(run)", run=chains)
    return Diagnosis.of(chains, evaluated)
