"""How often the verdict on a limit changes while chains grow, by the earlier rule and by this one.

    python experiments/accuracy/verdict_length/run.py FOLDER [--minutes 15]

Runs chains on samples of populations in FOLDER that are known completely, keeps their draws of
tau_1 in draws.npz, and writes table.md. Runs that draws.npz has already are not made again; with
--minutes, no run begins after this time.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[0] / "risk_peers"))
import tables  # noqa: E402
from samples import draw_sample, populations, truth  # noqa: E402

SAMPLES = {"mothers": 6, "voters": 10, "policies": 4, "workers": 4, "crash_occupants": 4}
N, CHAINS, WARMUP, DRAWS = 1000, 4, 500, 400
DRAWS_OF = HERE / "draws.npz"


def draws_of(frame, seed):
    """Draws (4, 400) of one sample; the true tau_1, and whether the checks see a misfit."""
    sample = draw_sample(frame, N, seed)
    run = bnp.sample(
        bnp.HDPMixedMembership(), bnp.Microdata.from_frame(sample), key=jax.random.key(seed),
        num_chains=CHAINS, num_warmup=WARMUP, num_samples=DRAWS, parameters_every=1,
    )  # fmt: skip
    risk = bnp.population_risk(run, len(frame), thin=1)
    misfit = bool(bnp.predictive_checks(run).warnings())
    return {
        "": risk.tau1.astype(np.int32),
        "-log_likelihood": risk.log_likelihood.astype(np.float32),
        "-about": np.array([truth(frame, sample).tau1, misfit]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=np.inf)
    args = parser.parse_args()
    began = time.monotonic()
    known = dict(np.load(DRAWS_OF)) if DRAWS_OF.exists() else {}
    frames = dict(populations(args.folder))
    for name, number in SAMPLES.items():
        for seed in range(1, number + 1):
            if f"{name}-{seed}-about" in known or time.monotonic() - began > 60 * args.minutes:
                continue
            found = draws_of(frames[name], seed)
            known |= {f"{name}-{seed}{what}": values for what, values in found.items()}
            np.savez_compressed(DRAWS_OF, **known)
            print(f"{time.monotonic() - began:.0f} s, {name} {seed}", flush=True)
    tables.write(known)


if __name__ == "__main__":
    main()
