"""Attack risk of census records at full size: seconds, memory, and what the two estimates find.

python experiments/synthesis/attack/run.py --rows 10000 --draws 1000
python experiments/synthesis/attack/run.py --rows 1000 --draws 2000 --refit
"""

import argparse
import resource
import time

import jax

import bnp_models as bnp


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1000, help="of all four chains")
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--thin", type=int, default=1)
    parser.add_argument("--components", type=int, default=50)
    parser.add_argument("--files", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="attack every record, unique or not")
    parser.add_argument("--refit", action="store_true")
    options = parser.parse_args()

    frame = bnp.datasets.census_income().sample(options.rows, seed=0)
    table = bnp.Microdata.from_frame(frame)
    start = time.perf_counter()
    chains = {
        "num_chains": 4, "num_warmup": options.warmup, "num_samples": options.draws // 4 + 2,
        "thin": options.thin,
    }  # fmt: skip
    run = bnp.sample(bnp.NPLCM(options.components), table, key=jax.random.key(0), **chains)
    files = bnp.synthesize(run, options.files)
    report("chains and files", start)
    refits = None
    if options.refit:
        start = time.perf_counter()
        refits = bnp.evaluation.refit(run.model, table, files, key=jax.random.key(1), **chains)
        report("refits", start)
    for known in (None, refits)[: 1 + options.refit]:
        start = time.perf_counter()
        risk = bnp.attack_risk(
            run, table, files, key=jax.random.key(2), refits=known, max_draws=options.draws,
            rows=range(table.n) if options.all else None, progress=True,
        )  # fmt: skip
        report(f"attack by {risk.estimator}", start)
        summary = risk.summary()
        for name in ("attacked", "draws", "blocks", "draws_per_block", "tau", "ranked_within",
                     "rho", "standard_error", "pareto_k", "warnings"):  # fmt: skip
            print(f"  {name}: {summary[name]}")


def report(what, start):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what}: {time.perf_counter() - start:.0f} s, peak {peak:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
