"""Verdict on a release: it compares the disclosure risk of a file with the limits of an agency.

The limit of tau_1 is on the number of population uniques among the records. A verdict is

- "unknown" if tau_1 cannot be used: chains that have not converged, or a model that does not fit by
  the checks, cannot show whether the risk is above or below a limit;
- no if the posterior mean, the expected number, is above the limit;
- yes if the whole 95% interval is at or below the limit; a mean just below the limit is not enough,
  because the true number may well be above it;
- "unknown" otherwise: the expected number is within the limit, but the interval extends above it.
  `protect` makes a file whose verdict is yes.

The limit of records applies to r_1 of every record, the posterior probability that the record is
unique in the population. r_1 is a probability already, so that it has no interval.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from bnp_models.data.documents import Document, Share


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


def judge(
    tau1: Mapping[str, float],
    r1: np.ndarray,
    limits: Limits,
    usable: bool = True,
    why: str = "",
    unit: str = "record",
) -> Verdict:
    """Judge a risk by limits.

    Parameters
    ----------
    tau1
        "mean", "q025" and "q975" of the posterior.
    r1
        Probabilities of the sample uniques to be unique in the population.
    limits
        At least one limit.
    usable, why
        Whether tau_1 can be used, and a sentence that says why not.
    unit
        What the sample uniques are, for the sentences: "record" or "household".

    Examples
    --------
    >>> bnp.judge({"mean": 2, "q025": 0, "q975": 9}, np.zeros(1), bnp.Limits(max_tau1=5)).word
    'unknown'
    """
    answers: list[bool | None] = [] if usable else [None]
    reasons = [] if usable else [why]
    if limits.max_tau1 is not None:
        answer, reason = _of_tau1(tau1, limits.max_tau1)
        answers.append(answer if usable else None)
        reasons.append(reason)
    above = None
    if limits.max_risk is not None:
        above, largest = int((r1 > limits.max_risk).sum()), float(r1.max(initial=0))
        number = f"{above:,} {unit}s are" if above > 1 else f"one {unit} is" if above else "none is"
        reasons.append(
            f"{number} unique in the population with a probability above your limit of "
            f"{limits.max_risk:g} (the largest is {largest:.3g})"
        )
        answers.append(above == 0 if usable else None)
    release = False if False in answers else None if None in answers else True
    return Verdict(release, "; ".join(reasons), limits, above)


def _of_tau1(tau1: Mapping[str, float], limit: float) -> tuple[bool | None, str]:
    """Answer by the limit for tau_1, and the figures in words."""
    mean, upper = tau1["mean"], tau1["q975"]
    figures = (
        f"{mean:,.1f} expected population uniques against your limit of {limit:g} (95% interval "
        f"{tau1['q025']:,.0f} to {upper:,.0f})"
    )
    if mean > limit:
        return False, figures
    if upper <= limit:
        return True, f"{figures}; the whole interval is within the limit"
    return None, f"{figures}, and the interval extends above the limit"
