"""Chains of real samples on which forecast.py tries the forecast of a run's minutes.

    python experiments/speed/time_to_trust/forecast_chains.py FOLDER

Long chains of the default model on samples of populations in FOLDER. forecast_chains.npz keeps each
fourth draw of the quantities that a run of `bnp-models risk` waits for.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "risk_peers"))
from samples import draw_sample, populations  # noqa: E402

SAMPLES = (
    ("workers", 1000), ("crash_occupants", 1000), ("simulated_residents", 1000), ("voters", 2000),
    ("policies", 1000), ("workers", 2000),
)  # fmt: skip
WARMUP, DRAWS, THIN = 500, 4000, 4
CHAINS_OF = HERE / "forecast_chains.npz"


def chains_of(frame, n):
    """Quantities (4, 1000) of long chains."""
    sample = bnp.Microdata.from_frame(draw_sample(frame, n, 21))
    run = bnp.sample(
        bnp.HDPMixedMembership(), sample, key=jax.random.key(21), num_warmup=WARMUP,
        num_samples=DRAWS // THIN, thin=THIN, parameters_every=1,
    )  # fmt: skip
    risk = bnp.population_risk(run, len(frame), thin=1)
    names = ("tau1", "tau1_conditional", "log_likelihood")
    return run, {name: vars(risk)[name].astype(np.float32) for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--aside", type=Path, help="folder for the margins, which are not kept")
    args = parser.parse_args()
    began = time.monotonic()
    known = dict(np.load(CHAINS_OF)) if CHAINS_OF.exists() else {}
    frames = dict(populations(args.folder))
    for name, n in SAMPLES:
        if f"{name}-{n}-tau1" in known or time.monotonic() - began > 60 * args.minutes:
            continue
        run, draws = chains_of(frames[name], n)
        known |= {f"{name}-{n}-{what}": value for what, value in draws.items()}
        np.savez_compressed(CHAINS_OF, **known)
        if args.aside is not None:
            np.save(args.aside / f"{name}-{n}.npy", bnp.level_margins(run, 10**6).draws)
        print(f"{time.monotonic() - began:.0f} s {name} {n}", run.seconds, flush=True)


if __name__ == "__main__":
    main()
