"""Functions that `bnp_models.diagnose` replaces; they go with the first release."""

import warnings
from collections.abc import Callable
from typing import Any

from bnp_models.inference.convergence import Evaluated, Figures, monitored
from bnp_models.inference.diagnosis import Diagnosis, diagnose
from bnp_models.inference.modes import find_modes
from bnp_models.inference.run import Run


def convergence(run: Run, evaluated: Evaluated | None = None) -> dict[str, Figures]:
    """Convergence figures of the quantities by which a run is judged."""
    return diagnose(run, evaluated).figures


def warnings_of(run: Run, evaluated: Evaluated | None = None) -> list[str]:
    """Sentences that a methodologist should know before using the figures."""
    return diagnose(run, evaluated).warnings


def target_reached(run: Run, evaluated: Evaluated | None = None) -> bool:
    """Whether a run of ``sample(until=...)`` ended because its target was reached."""
    return bool(Diagnosis.of(run, evaluated).reached)


_REPLACED: dict[str, tuple[Callable[..., Any], str]] = {
    "convergence": (convergence, "diagnose(run).figures"),
    "find_modes": (find_modes, "diagnose(run).modes"),
    "monitored": (monitored, "diagnose(run).draws"),
    "target_reached": (target_reached, "diagnose(run).reached"),
    "warnings_of": (warnings_of, "diagnose(run).warnings"),
}


def earlier(place: str, name: str) -> Callable[..., Any] | None:
    """Return a function by its old name, with a warning; None if there was no such name."""
    if name not in _REPLACED:
        return None
    function, now = _REPLACED[name]
    warnings.warn(
        f"{place}.{name} is bnp_models.{now} now; the old name goes with the first release",
        DeprecationWarning,
        stacklevel=3,
    )
    return function
