"""Progress of running chains: a bar, or one sentence a minute."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from tqdm import tqdm

Monitor = Callable[[dict[str, np.ndarray]], dict[str, float]]
"""Function that computes figures for the progress bar from the latest kept quantities."""

Tell = Callable[[str], None]
"""Function that is called with a sentence on the progress of the chains."""

_SECONDS_BETWEEN, _LEAST_FORECAST = 60.0, 5.0

# After so many seconds of a compilation, and again after each such interval, a sentence says that
# the compilation goes on.
_SECONDS_COMPILING = 15.0


class Progress:
    """Display of the progress of chains to their last sweep.

    Parameters
    ----------
    shown
        Whether a bar is shown on stderr; or a function that is called with a forecast after the
        first sweeps, and then with one sentence a minute.
    monitor
        More figures for the bar.
    num_chains
        Chains, for the forecast.
    """

    def __init__(self, shown: bool | Tell, monitor: Monitor | None, num_chains: int):
        self.tell = shown if callable(shown) else None
        self.has_bar = shown is True
        self.monitor, self.num_chains = monitor, num_chains
        self.bar: tqdm | None = None
        self.begun: tuple[float, int] | None = None
        self.told = 0.0
        self.forecast = False
        self.seconds_left: float | None = None
        """Seconds from the first update on after which the chains stop; None: no limit."""

    def update(
        self, iteration: int, goal: int, num_warmup: int, latest: Callable[[], dict]
    ) -> None:
        """Show that the chains are at a sweep; `latest` gives their latest kept quantities."""
        now = time.perf_counter()
        if self.begun is None:
            # The first block is not used for the forecast: it includes work that is done only once.
            self.begun, self.told = (now, iteration), now
            if self.has_bar:
                self.bar = tqdm(
                    total=goal, initial=iteration, unit="sweep", smoothing=0.1, dynamic_ncols=True
                )
            return
        phase = "warm-up" if iteration <= num_warmup else "draws"
        left = (now - self.begun[0]) / (iteration - self.begun[1]) * (goal - iteration)
        if self.bar is not None:
            self.bar.set_description(phase, refresh=False)
            self.bar.total = goal
            self.bar.update(iteration - self.bar.n)
            self.bar.set_postfix(_postfix(latest(), self.monitor))
        elif self.tell is not None and not self.forecast and now - self.begun[0] > 1:
            self.forecast = True
            if left > _LEAST_FORECAST:
                self.tell(
                    f"{self.num_chains} chains of {goal:,} sweeps: {_duration(left)}, estimated "
                    f"from the first {iteration:,} sweeps"
                    f"{self._limit(now, left, iteration, goal, num_warmup)}"
                )
        elif self.tell is not None and now - self.told > _SECONDS_BETWEEN and iteration < goal:
            self.told = now
            self.tell(f"{phase}: {iteration:,} of {goal:,} sweeps, {_duration(left)} left")

    def _limit(self, now: float, left: float, iteration: int, goal: int, num_warmup: int) -> str:
        """Words on a limit of time that ends the chains before their last sweep, if one does."""
        if self.seconds_left is None or self.begun is None:
            return ""
        allowed = max(self.seconds_left - (now - self.begun[0]), 0)
        if left <= allowed:
            return ""
        reached = iteration + int((goal - iteration) * allowed / left)
        where = f"at about sweep {reached:,}"
        if reached <= num_warmup:
            where += f", within the warm-up of {num_warmup:,}, so that there are no results"
        return f"; their minutes (--max-minutes) end {where}"

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Context of a compilation, in which a sentence from time to time says that it goes on."""
        done, began = threading.Event(), time.perf_counter()
        speak = self.tell or partial(tqdm.write, file=sys.stderr)

        def say() -> None:
            while not done.wait(_SECONDS_COMPILING):
                speak(f"compiling the sweeps: {time.perf_counter() - began:.0f} s so far")

        speaker = threading.Thread(target=say, daemon=True)
        if self.has_bar or self.tell is not None:
            speaker.start()
        try:
            yield
        finally:
            done.set()
            if speaker.is_alive():
                speaker.join()

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        if self.bar is not None:
            self.bar.close()


def _duration(seconds: float) -> str:
    """Approximate duration in words."""
    if seconds < 90:
        return f"about {max(1, round(seconds)):d} seconds"
    return f"about {seconds / 60:,.0f} minutes"


def _postfix(latest: dict[str, np.ndarray], monitor: Monitor | None) -> dict[str, str]:
    """Figures that the progress bar shows."""
    figures = {}
    if "components" in latest:
        figures["components"] = "/".join(str(int(c)) for c in latest["components"])
    if monitor is not None:
        figures |= {name: f"{value:.3g}" for name, value in monitor(latest).items()}
    return figures
