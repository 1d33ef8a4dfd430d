"""Verdict on a release: it compares the disclosure risk of a file with the limits of an agency.

The limit of tau_1 is on the number of population uniques among the records. A verdict is

- no if the posterior mean, the expected number, is above the limit;
- yes if the whole 95% interval is at or below the limit; a mean just below the limit is not enough,
  because the true number may well be above it;
- "unknown" otherwise: if the limit is between the mean and the upper end of the interval, or if the
  model does not fit by the checks. `protect` makes a file whose verdict is yes.

Chains give the mean and the upper end with a Monte Carlo error. The one that decides must be on the
same side of the limit if it is moved towards the limit by `MARGIN` standard errors; otherwise the
verdict is "unknown". So short chains decide where the limit is far from both figures, and longer
chains seldom change the verdict (experiments/accuracy/verdict_length).

The limit of records applies to r_1 of every record, the posterior probability that the record is
unique in the population. r_1 is a probability already, so that it has no interval, but it has a
Monte Carlo error, which is taken into account in the same way.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from bnp_models.data.documents import Document, Share
from bnp_models.inference.convergence import ENDS, monte_carlo_errors


class Limits(NamedTuple):
    """An agency's limits of the risk; None: no limit.

    Examples
    --------
    >>> bnp.Limits(max_tau1=5).given
    True
    """

    max_tau1: float | None = None
    """Limit for the number of sample uniques that are unique in the population."""
    max_risk: float | None = None
    """Limit for the probability r_1 of each record to be unique in the population."""

    @property
    def given(self) -> bool:
        """Whether there is a limit at all."""
        return self != (None, None)


class VerdictEntry(Document):
    """Verdict on the release, if limits were given."""

    release: Literal[True, False, "unknown"]
    """Whether the limits are met."""
    why: str
    max_tau1: float | None
    """Limit for the number of population uniques."""
    max_risk: Share | None
    """Limit for the probability of each record to be unique in the population."""
    records_above: int | None = None
    """Number of records above max_risk."""


class Verdict(NamedTuple):
    """Whether a file may be released, by given limits.

    Examples
    --------
    >>> tau1 = {"mean": 2, "q025": 0, "q975": 4}
    >>> bnp.judge(tau1, np.array([0.2]), bnp.Limits(max_tau1=5, max_risk=0.1)).document()["why"]
    '2.0 expected population uniques against your limit of 5 (95% interval 0 to 4); ...'
    """

    release: bool | None
    """Whether the file may be released; None if it is not known."""
    why: str
    """The figures against the limits, in words."""
    limits: Limits
    records_above: int | None
    """Number of records with a risk above the limit; None if there is no such limit."""

    @property
    def word(self) -> str:
        """The answer: yes, no or unknown."""
        return {True: "yes", False: "no", None: "unknown"}[self.release]

    def document(self) -> VerdictEntry:
        """Entry "verdict" of risk.json."""
        release = "unknown" if self.release is None else self.release
        return VerdictEntry.of(self, release=release, **self.limits._asdict())


MARGIN = 2.0
"""Monte Carlo standard errors by which figures of chains are moved towards a limit before they are
compared with it."""


def judge(
    tau1: Mapping[str, float],
    r1: np.ndarray,
    limits: Limits,
    usable: bool = True,
    why: str = "",
    *,
    r1_error: np.ndarray | None = None,
    unit: str = "record",
) -> Verdict:
    """Judge a risk by limits.

    Parameters
    ----------
    tau1
        "mean", "q025" and "q975" of the posterior; and "error_mean" and "error_q975", Monte Carlo
        standard errors, if they have any (`figures_of_draws`).
    r1
        Probabilities of the sample uniques to be unique in the population.
    limits
        At least one limit.
    usable, why
        Whether the model allows a verdict, and a sentence that says why not.
    r1_error
        Monte Carlo standard errors of `r1`. Default: none has an error.
    unit
        What the sample uniques are, for the sentences: "record" or "household".

    Examples
    --------
    >>> bnp.judge({"mean": 2, "q025": 0, "q975": 9}, np.zeros(1), bnp.Limits(max_tau1=5)).word
    'unknown'
    """
    answers: list[bool | None] = []
    reasons = [] if usable else [why]
    if limits.max_tau1 is not None:
        answer, reason = _of_tau1(tau1, limits.max_tau1)
        answers.append(answer)
        reasons.append(reason)
    above = None
    if limits.max_risk is not None:
        above = int((r1 > limits.max_risk).sum())
        error = np.zeros(r1.shape) if r1_error is None else r1_error
        answer, reason = _of_records(r1, error, limits.max_risk, unit)
        answers.append(answer)
        reasons.append(reason)
    if not usable:
        answers = [None]
    release = False if False in answers else None if None in answers else True
    return Verdict(release, "; ".join(reasons), limits, above)


def figures_of_draws(tau1: np.ndarray, superchain: int = 1) -> dict[str, float]:
    """Figures of tau_1 that `judge` needs, from its draws.

    Parameters
    ----------
    tau1
        (chains, draws) draws.
    superchain
        As for `bnp_models.inference.convergence.figures_of`.
    """
    low, high = np.quantile(tau1, ENDS)
    errors = monte_carlo_errors(tau1, superchain)
    return {
        "mean": float(tau1.mean()), "q025": float(low), "q975": float(high),
        "error_mean": errors.mean, "error_q975": errors.high,
    }  # fmt: skip


def _of_tau1(tau1: Mapping[str, float], limit: float) -> tuple[bool | None, str]:
    """Answer by the limit for tau_1, and the figures in words."""
    mean, high = tau1["mean"], tau1["q975"]
    of_mean, of_high = (tau1.get(f"error_{name}", 0.0) for name in ("mean", "q975"))
    errors = ""
    if not (of_mean == 0 and of_high == 0):
        errors = (
            f"; Monte Carlo errors of {of_mean:.2g} for the mean and {of_high:.2g} for the upper "
            "end"
        )
    figures = (
        f"{mean:,.1f} expected population uniques against your limit of {limit:g} (95% interval "
        f"{tau1['q025']:,.0f} to {high:,.0f}{errors})"
    )
    if mean - MARGIN * of_mean > limit:
        return False, figures
    if high + MARGIN * of_high <= limit:
        return True, f"{figures}; the whole interval is within the limit"
    if mean > limit or high <= limit:
        return None, (
            f"{figures}; the {'mean is above' if mean > limit else 'whole interval is within'} the "
            f"limit, but {MARGIN:g} Monte Carlo errors reach across it, which longer chains make "
            "smaller"
        )
    return None, f"{figures}; the limit is between the mean and the upper end of the interval"


def _of_records(
    r1: np.ndarray, error: np.ndarray, limit: float, unit: str
) -> tuple[bool | None, str]:
    """Answer by the limit for each record, and the figures in words."""
    above = int((r1 > limit).sum())
    number = f"{above:,} {unit}s are" if above > 1 else f"one {unit} is" if above else "none is"
    largest = int(r1.argmax()) if r1.size else None
    of_largest = "" if largest is None or error[largest] == 0 else (
        f", with a Monte Carlo error of {error[largest]:.2g}"
    )  # fmt: skip
    figures = (
        f"{number} unique in the population with a probability above your limit of {limit:g} (the "
        f"largest is {r1.max(initial=0):.3g}{of_largest})"
    )
    if (r1 - MARGIN * error > limit).any():
        return False, figures
    if (r1 + MARGIN * error <= limit).all():
        return True, figures
    return None, (
        f"{figures}; {MARGIN:g} Monte Carlo errors reach across the limit, which longer chains "
        "make smaller"
    )
