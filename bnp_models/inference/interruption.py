"""Signals while chains run: recorded at once, and obeyed at a point where nothing is lost."""

import contextlib
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal ended the work."""

    def __init__(self, number: int, what: str):
        self.number = number
        super().__init__(what)


class Interrupted(Stopped):
    """Chains were stopped by a signal, after a whole number of sweeps.

    Examples
    --------
    >>> str(bnp.Interrupted(number=2, iteration=60, goal=400, saved=True))
    'stopped after sweep 60 of 400, which is saved'
    """

    def __init__(self, number: int, iteration: int, goal: int, saved: bool):
        self.saved = saved
        after = f"stopped after sweep {iteration:,} of {goal:,}"
        super().__init__(number, f"{after}{', which is saved' if saved else '; nothing was saved'}")


class OutOfTime(RuntimeError):
    """The minutes of a run were used up before there were draws to judge.

    Parameters
    ----------
    minutes
        The minutes that were allowed.
    iteration, first
        Sweeps that were made, and sweeps after which there are draws to judge.
    needed
        Estimate of the minutes that these take. Default: it is not known.
    compiling
        Minutes that compilation took.

    Examples
    --------
    >>> str(bnp.OutOfTime(minutes=5, iteration=300, first=1004, needed=14.6))
    'stopped after 5 minutes, at sweep 300 of the 1,004 that ...; these take about 15 minutes'
    """

    def __init__(
        self,
        minutes: float,
        iteration: int,
        first: int,
        needed: float | None = None,
        compiling: float = 0.0,
    ):
        plural = "" if needed is None or math.ceil(needed) == 1 else "s"
        about = "" if needed is None else f"; these take about {math.ceil(needed):,} minute{plural}"
        if compiling > minutes:
            about += (
                f"; compilation, which cannot be stopped, took longer than the {minutes:.3g} "
                "minutes allowed, but its programs are kept for the next run"
            )
        super().__init__(
            f"stopped after {max(minutes, compiling):.3g} minutes, at sweep {iteration:,} of the "
            f"{first:,} that the warm-up and the first draws take, so that there are no results "
            f"yet{about}"
        )


@contextlib.contextmanager
def noted_signals() -> Iterator[Callable[[], int]]:
    """Record SIGINT and SIGTERM instead of obeying them; yield a function that returns the signal.

    The function returns 0 if no signal came. Signals are only recorded because an exception that a
    handler raises during a callback of JAX may be lost. A second signal of the same kind is obeyed.
    Outside the main thread Python handles no signals, and none is recorded.
    """
    noted: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def note(number, _frame):
        noted.append(number)
        signal.signal(number, before[number])
        print(
            "stopping at the next point where nothing is lost; interrupt once more to stop at once",
            file=sys.stderr,
        )

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            before[number] = signal.getsignal(number)
            # None: the handler was not set by Python, and Python cannot restore it.
            if before[number] is not None and before[number] != signal.SIG_IGN:
                signal.signal(number, note)
    try:
        yield lambda: noted[0] if noted else 0
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
