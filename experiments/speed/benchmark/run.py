"""Speed of the samplers and of the risk: compile and run time apart.

    python experiments/speed/benchmark/run.py                   # everything but the scale test
    python experiments/speed/benchmark/run.py --scale           # n up to 1,000,000, and memory
    python experiments/speed/benchmark/run.py --only latent_class
    python experiments/speed/benchmark/run.py --only nested
    python experiments/speed/benchmark/run.py --only hdp_zeros  # resumes; --minutes 20: no longer
    python experiments/speed/benchmark/run.py --chains 1 32     # on an accelerator

Prints a table and writes it to results-<device>.json beside this file; hdp_zeros appends to
hdp_zeros-<device>.csv what is not there yet, and makes a table and a figure of it.
"""

import argparse
import json
import resource
import sys
import time
from functools import partial
from pathlib import Path

import conditions
import households
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import bnp_models as bnp
from bnp_models.kernels.mixed_membership import cell_probability
from bnp_models.kernels.numerics.set_partitions import log_block_weights_gamma
from bnp_models.models.mixed_membership.new_records import pad_levels

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results, markdown  # noqa: E402

NUM_LEVELS = (3, 4, 9, 2, 6, 5, 11, 4, 3, 3)


def latent_class_sample(n, num_classes=20, seed=0):
    """Coded records of a latent class model with ten variables of 2 to 11 levels."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(num_classes, n, p=rng.dirichlet(np.ones(num_classes)))
    columns = []
    for num_levels in NUM_LEVELS:
        cumulative = rng.dirichlet(np.full(num_levels, 0.5), num_classes).cumsum(axis=1)
        columns.append((rng.random((n, 1)) > cumulative[classes]).sum(axis=1))
    codes = np.minimum(np.stack(columns, axis=1), np.array(NUM_LEVELS) - 1)
    names = tuple(f"v{j}" for j in range(len(NUM_LEVELS)))
    return bnp.Microdata(bnp.Schema(names, tuple(tuple(range(x)) for x in NUM_LEVELS)), codes)


def median_seconds(function, repeats):
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - began)
    return float(np.median(times))


class Chains:
    """Chains in equilibrium enough to be timed, advanced a stretch at a time, placed as in a run.

    `fixed` keeps the capacity where the mass beyond the last slot would have it grow.
    """

    def __init__(
        self, model, table, num_chains=1, conditions=None, start=15, burn=300, fixed=False
    ):
        from bnp_models.inference import chunks
        from bnp_models.inference.compilation import options_of_loops
        from bnp_models.inference.placement import Placement

        self.model = model
        self.num_chains = num_chains
        data = model.prepare(table, conditions)
        self.place = Placement(num_chains, data, jax.devices())
        data = self.place.data(data)
        self.keys = self.place.groups(jax.vmap(jax.random.key)(jnp.arange(num_chains)))
        began = time.perf_counter()
        self.states = [
            chunks.init_chains(model, data, keys, model.capacity, jnp.full(keys.size, start))
            for keys in self.keys
        ]
        self.advance_by = partial(
            chunks.advancing(options_of_loops(jax.devices())),
            self.model,
            data,
            schedule=chunks.Schedule(warmup=2**30, growth_start=0),
            kept=chunks.Kept(self.model.scalars, slots=1),
            early_tolerance=np.inf if fixed else chunks.EARLY_LEFT_OVER_TOLERANCE,
        )
        first = self.advance_by(self.keys[0], self.states[0], stretch=chunks.Stretch(0, 0))
        jax.block_until_ready(first)
        self.compile_seconds = time.perf_counter() - began
        self.iteration = 0
        self.advance(burn)

    def advance(self, sweeps):
        from bnp_models.inference.chunks import Stretch

        stop = self.iteration + sweeps
        advance = partial(self.advance_by, stretch=Stretch(self.iteration, stop))
        groups = self.place.run(advance, self.keys, self.states)
        self.states = [group.states for group in groups]
        # No sweep is a draw: the spare slot has the last one.
        self.latest = {
            name: np.concatenate([group.buffers[name][-1] for group in groups])
            for name in self.model.scalars
        }
        assert all(int(group.reached) == stop for group in groups), "the capacity was outgrown"
        self.iteration = stop

    def row(self, sweeps, repeats=7):
        seconds = median_seconds(lambda: self.advance(sweeps), repeats) / sweeps
        return {
            "ms_per_sweep": 1e3 * seconds,
            "sweeps_per_second": 1 / seconds,
            "chain_sweeps_per_second": self.num_chains / seconds,
            "compile_seconds": self.compile_seconds,
        }


def hdp_chains(n, num_chains, burn=300, **options):
    model = bnp.HDPMixedMembership(**options)
    return Chains(model, latent_class_sample(n), num_chains, burn=burn)


def sweeps_table(chains):
    rows = []
    # Pairs that are compared run next to each other.
    cases = [(n, c, k, "shared") for n in (1000, 10_000) for c in chains for k in (64, 256)] + [
        (n, 1, 128, mode) for n in (1000, 10_000) for mode in ("record", "hierarchical")
    ]
    for n, num_chains, capacity, mode in cases:
        case = hdp_chains(n, num_chains, capacity=capacity, concentration=mode)
        row = {"n": n, "chains": num_chains, "K_max": capacity, "alpha": mode}
        rows.append(row | case.row(200 if n <= 1000 else 50))
        report(rows[-1])
    return rows


def times_in_turn(cases, sweeps, repeats):
    """Seconds of one sweep of each chain, the chains timed in turn."""
    times = {label: [] for label in cases}
    for _ in range(repeats):
        for label, case in cases.items():
            times[label].append(median_seconds(partial(case.advance, sweeps), 1) / sweeps)
    return times


def seconds_in_turn(cases, sweeps, repeats=7):
    """Medians of `times_in_turn`."""
    times = times_in_turn(cases, sweeps, repeats)
    return {label: float(np.median(seconds)) for label, seconds in times.items()}


def interleaved(cases, sweeps):
    """Median milliseconds of a sweep of each chain, and the ratio of the last to the first."""
    times = times_in_turn(cases, sweeps, 15)
    first, *_, last = times
    ratio = float(np.median(np.divide(times[last], times[first])))
    of_each = {f"ms_at_{label}": 1e3 * float(np.median(t)) for label, t in times.items()}
    return of_each | {f"ratio_{last}_over_{first}": ratio}


def capacity_table():
    """K_max 64 against 256, interleaved in one process."""
    rows = []
    for n in (1000, 10_000):
        cases = {k: hdp_chains(n, 1, capacity=k) for k in (64, 256)}
        rows.append({"n": n} | interleaved(cases, 200 if n <= 1000 else 40))
        report(rows[-1])
    return rows


def level_prior_table():
    """The papers' prior of levels against the learned one, interleaved in one process."""
    census = bnp.datasets.census_income()
    tables = {"simulated": latent_class_sample(10_000),
              "census": bnp.Microdata.from_frame(census.sample(10_000, seed=0))}  # fmt: skip
    rows = []
    for name, table in tables.items():
        cases = {
            prior: Chains(bnp.HDPMixedMembership(level_prior=prior), table, burn=500, start=40)
            for prior in ("uniform", "learned")
        }
        components = {f"components_{prior}": int(case.latest["components"].mean())
                      for prior, case in cases.items()}  # fmt: skip
        rows.append({"records": name, "n": table.n} | components | interleaved(cases, 40))
        report(rows[-1])
    return rows


def risk_table():
    """One evaluation of tau_1's conditional expectation for 2,000 unique cells."""
    case = hdp_chains(10_000, 1, capacity=64)
    state = jax.tree.map(lambda x: x[0], case.states[0])
    theta = pad_levels(state.theta, NUM_LEVELS)
    cells = jnp.asarray(latent_class_sample(10_000).cells().codes[:2000])
    num_new = 290_000

    @jax.jit
    def exact(theta, g0, alpha):
        log_p = cell_probability.log_cell_probability_exact(theta, g0, cells, alpha=alpha)
        return jnp.sum(jnp.exp(num_new * jnp.log1p(-jnp.exp(log_p))))

    @jax.jit
    def tracked(theta, g0, alpha):
        weights = log_block_weights_gamma(2.0, 1.0, len(NUM_LEVELS))
        log_p = cell_probability.log_cell_probability_exact(theta, g0, cells, log_weights=weights)
        return jnp.sum(jnp.exp(num_new * jnp.log1p(-jnp.exp(log_p))))

    @jax.jit
    def draws(theta, g0, alpha):
        estimate = cell_probability.log_cell_probability_draws(
            jax.random.key(0), theta, g0, alpha, cells, 1000
        )
        return jnp.sum(jnp.exp(num_new * jnp.log1p(-jnp.exp(estimate.log_p))))

    rows = []
    for name, function in (("exact, shared alpha", exact), ("exact, alpha ~ Ga", tracked),
                           ("1,000 shared draws", draws)):  # fmt: skip
        call = partial(function, theta, state.g0, state.alpha)
        began = time.perf_counter()
        value = float(call())
        compile_seconds = time.perf_counter() - began
        rows.append({"tau_1 given parameters": name, "ms": 1e3 * median_seconds(call, 25),
                     "value": value, "compile_seconds": compile_seconds})  # fmt: skip
        report(rows[-1])
    return rows


def latent_class_table(chains):
    """The latent class samplers: with 60 conditions, with 73 on 17 variables, and without."""
    zeros_60, zeros_73 = conditions.conditions_60(), conditions.conditions_73()
    small = conditions.simulate_latent_classes(zeros_60, 7000, 50)
    large = conditions.simulate_latent_classes(zeros_73, 10_000, 80)
    plain = {"reorder": False, "swap": False, "split_merge_every": 0}
    cases = [
        ("J=10, 60 conditions", small, zeros_60, 50, {
            "plain Gibbs (boxes)": bnp.TNPLCM(augmentation="boxes", **plain),
            "marginal levels": bnp.TNPLCM(**plain),
            "+ swaps and reordering": bnp.TNPLCM(split_merge_every=0),
            "+ split-merge (default)": bnp.TNPLCM(),
            "truncation by class": bnp.TNPLCM(truncation="classes"),
        }),
        ("J=10, no zeros", small, None, 50, {
            "plain Gibbs": bnp.NPLCM(**plain), "NPLCM (default)": bnp.NPLCM(),
        }),
        ("J=17, 73 conditions", large, zeros_73, 80, {
            "plain Gibbs (boxes)": bnp.TNPLCM(80, augmentation="boxes", **plain),
            "+ swaps and reordering": bnp.TNPLCM(80, split_merge_every=0),
            "+ split-merge (default)": bnp.TNPLCM(80),
        }),
    ]  # fmt: skip
    rows = []
    for name, table, zeros, num_classes, models in cases:
        for num_chains in chains:
            timed = {
                label: Chains(model, table, num_chains, zeros, num_classes)
                for label, model in models.items()
            }
            seconds = {label: [] for label in timed}
            for _ in range(7):
                for label, case in timed.items():
                    seconds[label].append(median_seconds(partial(case.advance, 100), 1) / 100)
            for label, case in timed.items():
                median = float(np.median(seconds[label]))
                rows.append({
                    "data": name, "n": table.n, "K": num_classes, "chains": num_chains,
                    "sampler": label, "ms_per_sweep": 1e3 * median,
                    "sweeps_per_second": 1 / median,
                    "chain_sweeps_per_second": num_chains / median,
                    "compile_seconds": case.compile_seconds,
                })  # fmt: skip
                report(rows[-1])
    return rows


# Parameters are drawn from their prior until P(feasible) lies here.
SHARE = (0.04, 0.06)
PLAIN_HDP = {
    "dish_stride": 0, "cell_stride": 0, "tilt": False, "split_merge_every": 0,
    "seating_every": 0, "trajectory_steps": 0,
}  # fmt: skip
HDP_ZEROS = {
    "boxes, plain moves": {"augmentation": "boxes", **PLAIN_HDP},
    "boxes (default)": {},
    "simulation": {"augmentation": "simulation"},
    "not applicable": {"not_applicable": True},
}
COST_SIZES = (500, 1000, 2000, 5000, 10_000, 20_000)


def hdp_zeros_table(minutes, sizes, cost_sizes, burn):
    """The HDP under 60 conditions: the samplers, and the cost against the augmented records."""
    device = jax.devices()[0].device_kind.lower().replace(" ", "-")
    path = HERE / f"hdp_zeros-{device}.csv"
    results = Results(path, ("table", "n"), minutes)
    cases = [{"table": "samplers", "n": n} for n in sizes]
    cases += [{"table": "cost", "n": n} for n in cost_sizes]
    for case in results.missing(cases):
        measure = {"samplers": time_samplers, "cost": time_cost}[case["table"]]
        for row in measure(case["n"], burn):
            results.append(case | row)
            report(case | row)
        # Programs that stay compiled use up the memory maps of a process.
        jax.clear_caches()
    if path.exists():
        tables = pd.read_csv(path)
        write_hdp_zeros(tables, path.with_suffix(".md"), path.with_suffix(".png"))


def zeros_sample(n):
    """The conditions, and n records of HDP mixed membership, about 95% of them having gone."""
    zeros = conditions.conditions_60()
    return zeros, conditions.simulate_mixed_membership(zeros, n, SHARE)[0]


def augmented(case):
    """Records drawn for the impossible region in the last sweep: n_0."""
    return int(case.latest["augmented"].mean())


def time_samplers(n, burn):
    """Sweeps per second of one chain, each sampler having run on by itself."""
    zeros, table = zeros_sample(n)
    cases = {
        label: Chains(bnp.HDPMixedMembership(**options), table, 1, zeros, burn=burn, fixed=True)
        for label, options in HDP_ZEROS.items()
    }
    cases["conditions ignored"] = Chains(bnp.HDPMixedMembership(), table, burn=burn, fixed=True)
    seconds = seconds_in_turn(cases, 100 if n <= 1000 else 20)
    return [
        {
            "sampler": label, "K_max": case.model.capacity, "n_0": augmented(case),
            "p_0": augmented(case) / (augmented(case) + n),
            "components": int(case.latest["components"].mean()),
            "left_over": float(case.latest["left_over"].mean()),
            "ms_per_sweep": 1e3 * seconds[label], "sweeps_per_second": 1 / seconds[label],
            "compile_seconds": case.compile_seconds,
        }
        for label, case in cases.items()
    ]  # fmt: skip


def time_cost(n, burn):
    """Both exact augmentations from one and the same state, no other move beside them."""
    zeros, table = zeros_sample(n)
    cases = {
        label: Chains(
            bnp.HDPMixedMembership(augmentation=label, **PLAIN_HDP),
            table,
            1,
            zeros,
            burn=0,
            fixed=True,
        )  # fmt: skip
        for label in ("boxes", "simulation")
    }
    cases["boxes"].advance(burn)
    rows = []
    for _ in range(7):
        cases["simulation"].states = cases["boxes"].states
        rows.append(seconds_in_turn(cases, 5, 1) | {
            label + "_n_0": augmented(case) for label, case in cases.items()
        })  # fmt: skip
    medians = {name: float(np.median([row[name] for row in rows])) for name in rows[0]}
    return [
        {
            "sampler": label, "K_max": case.model.capacity, "n_0": int(medians[label + "_n_0"]),
            "p_0": medians[label + "_n_0"] / (medians[label + "_n_0"] + n),
            "components": int(case.latest["components"].mean()),
            "left_over": float(case.latest["left_over"].mean()),
            "ms_per_sweep": 1e3 * medians[label], "sweeps_per_second": 1 / medians[label],
            # The samplers of the same size have been compiled before.
            "compile_seconds": None,
        }
        for label, case in cases.items()
    ]  # fmt: skip


def nested_table(burn):
    """Persons within households: one chain, in the states that it has come to."""
    small, rules = households.plausible_households(households.SMALL_SIZES)
    large, _ = households.plausible_households(households.RULED_SIZES)
    crowded, _ = households.plausible_households(households.CROWDED_SIZES)
    plain = households.nested_households(
        households.PAPER_SIZES, households.PAPER_MEMBER_LEVELS, households.PAPER_HOUSEHOLD_LEVELS
    )
    cases = {
        "1 to 4 persons, rules": (small, rules, (20, 15)),
        "1 to 9 persons, no rules": (plain, None, (30, 10)),
        "2 to 4 persons, rules": (large, rules, (40, 15)),
        "4 to 6 persons, rules": (crowded, rules, (40, 15)),
    }
    chains = {
        name: Chains(
            bnp.NDPMPM(*classes, member_classes="nested"), table, 1, zeros, classes[0], burn
        )
        for name, (table, zeros, classes) in cases.items()
    }
    times = {name: [] for name in chains}
    drawn = {name: [] for name in chains}
    for _ in range(15):
        for name, case in chains.items():
            times[name].append(median_seconds(partial(case.advance, 20), 1) / 20)
            drawn[name].append(augmented(case))
    rows = []
    for name, case in chains.items():
        table, _, (num_classes, num_nested) = cases[name]
        median = float(np.median(times[name]))
        rows.append({
            "households": name, "n": table.n, "persons": table.num_persons, "F": num_classes,
            "S": num_nested, "augmented": int(np.median(drawn[name])),
            "components": int(case.latest["components"].mean()),
            "ms_per_sweep": 1e3 * median, "ms_in_the_best_stretch": 1e3 * min(times[name]),
            "sweeps_per_second": 1 / median, "compile_seconds": case.compile_seconds,
        })  # fmt: skip
        report(rows[-1])
    return rows


def write_hdp_zeros(rows, table_path, figure_path):
    """Tables of the rows, and the figure of cost against augmented records."""
    text = []
    for name, title in (("samplers", "Samplers"), ("cost", "Augmentations, from one state")):
        own = rows[rows["table"] == name].drop(columns="table").sort_values("n", kind="stable")
        if len(own):
            own = own.dropna(axis=1, how="all")
            text += [f"## {title}", markdown(own, index=False)]
    table_path.write_text("\n\n".join(text) + "\n")
    cost = rows[rows["table"] == "cost"].sort_values("n")
    if cost.empty:
        return
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axis = figure.subplots()
    for label, own in cost.groupby("sampler"):
        axis.loglog(own["n_0"], own["ms_per_sweep"], "o-", label=label)
    axis.set_xlabel("augmented records n_0")
    axis.set_ylabel("ms per sweep")
    axis.legend()
    figure.savefig(figure_path, dpi=100)


def memory_table():
    """Peak memory as sweeps grow, all kept quantities being scalars."""
    table = latent_class_sample(2000)
    rows = []
    for sweeps in (500, 5000, 20_000):
        bnp.sample(
            bnp.HDPMixedMembership(), table, key=jax.random.key(0), num_chains=1, num_warmup=0,
            num_samples=sweeps, keep=bnp.HDPMixedMembership.scalars,
        )  # fmt: skip
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append({"sweeps": sweeps, "peak_MiB": peak})
        report(rows[-1])
    return rows


def scale_table():
    rows = []
    for n in (10_000, 100_000, 1_000_000):
        case = hdp_chains(n, 1, burn=10)
        row = {"n": n} | case.row(max(1, 200_000 // n), 3)
        row["ns_per_item"] = 1e6 * row["ms_per_sweep"] / (n * len(NUM_LEVELS))
        row["peak_GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(row)
        report(rows[-1])
    return rows


def report(row):
    print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}"
                    for k, v in row.items()), flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 4])
    # Memory first: the peak is of the process.
    tables = {
        "memory": memory_table,
        "sweeps": lambda: sweeps_table(args.chains),
        "capacity": capacity_table,
        "level_prior": level_prior_table,
        "risk": risk_table,
        "latent_class": lambda: latent_class_table(args.chains),
        "nested": lambda: nested_table(args.burn),
    }
    names = (*tables, "hdp_zeros")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--minutes", type=float, help="hdp_zeros: begin no data set later")
    parser.add_argument("--n", type=int, nargs="*", default=[1000, 10_000], help="of hdp_zeros")
    parser.add_argument("--cost-n", type=int, nargs="*", default=COST_SIZES, help="the same")
    parser.add_argument(
        "--burn", type=int, default=500, help="sweeps before nested or hdp_zeros is timed"
    )
    args = parser.parse_args()
    if not args.scale and "hdp_zeros" in args.only:
        hdp_zeros_table(args.minutes, args.n, args.cost_n, args.burn)
        args.only = [name for name in args.only if name != "hdp_zeros"]
        if not args.only:
            return
    device = jax.devices()[0].device_kind
    if args.scale:
        tables = {"scale": scale_table()}
    else:
        tables = {name: tables[name]() for name in args.only}
    path = HERE / f"results-{device.lower().replace(' ', '-')}.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    old |= {"device": device, "jax": jax.__version__, "bnp_models": bnp.__version__} | tables
    path.write_text(json.dumps(old, indent=1) + "\n")


if __name__ == "__main__":
    main()
