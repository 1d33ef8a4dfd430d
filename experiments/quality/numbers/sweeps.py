"""Time of sweeps of the HDP in double and in single precision, in turn, on a large sample.

    python experiments/quality/numbers/sweeps.py --records 100000

Both programs are compiled first. Every round times some sweeps of each; seconds a sweep are given
of the fastest round and of the middle one.
"""

import argparse
import sys
import time
from pathlib import Path
from unittest.mock import patch

import jax
import numpy as np

import bnp_models as bnp
from bnp_models.models.mixed_membership import feasible

sys.path.append(str(Path(__file__).parents[1] / "load"))
from doublings import levels_of, records_of, with_zeros  # noqa: E402

ROUNDS, SWEEPS, WARMUP = 5, 12, 24


class InSingle(bnp.HDPMixedMembership):
    """Another type, so that its program is another one."""


def chains(table, zeros, single):
    """A run whose later sweeps are timed, in single precision whatever its records, or not."""
    model = InSingle() if single else bnp.HDPMixedMembership()
    with limit(single):
        return bnp.sample(
            model, table, key=jax.random.key(0), num_chains=1, num_warmup=WARMUP,
            num_samples=SWEEPS, conditions=zeros,
        )  # fmt: skip


def limit(single):
    """Context in which no sample has enough records for double precision, or any as it is."""
    return patch.object(feasible, "RECORDS", 2**31 if single else feasible.RECORDS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    records = parser.parse_args().records
    frame = records_of(records, levels_of(10))
    print("| structural zeros | precision | s a sweep, fastest | middle |\n|---|---|---|---|")
    for number in (0, 20):
        kept, given = with_zeros(frame, number) if number else (frame, None)
        table = bnp.Microdata.from_frame(kept)
        zeros = None if given is None else bnp.StructuralZeros.from_frame(given, table.schema)
        runs = {single: chains(table, zeros, single) for single in (False, True)}
        seconds = {single: [] for single in runs}
        for _ in range(ROUNDS):
            for single, run in runs.items():
                with limit(single):
                    began = time.perf_counter()
                    runs[single] = bnp.extend(run, SWEEPS)
                    seconds[single].append((time.perf_counter() - began) / SWEEPS)
        for single, found in seconds.items():
            print(
                f"| {number} | {'single' if single else 'double'} | {min(found):.3f} "
                f"| {np.median(found):.3f} |"
            )


if __name__ == "__main__":
    main()
