"""Tables 2 and 4 and figures 1 and 2 of Hu, Reiter & Wang (2018) on simulated populations.

    python experiments/papers/simulated_households/run.py               # resumes; writes the tables
    python experiments/papers/simulated_households/run.py --minutes 10  # begins no chain later

Then come coverage.py, attack.py and scale.py, unless --only-tables is given.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from populations import Design, adults, families
from quantities import (
    PRINTED_50000,
    PRINTED_ADULTS,
    PRINTED_FAMILIES,
    of_adults,
    of_families,
    proportions,
)

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of
from bnp_models.inference.run import spaced_draws
from bnp_models.models.nested.state import NESTED
from bnp_models.models.nested.sweep import update_classes

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results, markdown, shown_intervals  # noqa: E402

NUM_FILES = 5
FILES_OF_CHAINS = 20
"""Files of each chain from which R-hat of the quantities is computed; 5 of them are combined."""

PRINTED = {"member_classes": "nested", "level_prior": "uniform", "ordered": "none"}


class Chains(NamedTuple):
    """Sweeps of each of two chains; one in `thin` is kept."""

    warmup: int
    draws: int
    thin: int = 1

    def settings(self):
        return {"num_chains": 2, "num_warmup": self.warmup, "num_samples": self.draws,
                "thin": self.thin}  # fmt: skip


class Fit(NamedTuple):
    """A model, whether it is under the rules, its chains, and the files made from them."""

    model: Callable[[], bnp.NDPMPM | bnp.NPLCM]
    under_rules: bool
    chains: Chains
    methods: tuple[str, ...]
    files_of_chains: int = FILES_OF_CHAINS


class Data(NamedTuple):
    """A population, its quantities, and the intervals that the paper prints."""

    design: Callable[[], Design]
    quantities: Callable[[pd.DataFrame], pd.DataFrame]
    printed: dict[str, tuple[str, ...]]
    models: tuple[str, ...]
    least: int
    """Number of persons of a cell in figures 1 and 2, at least."""


DATA = {
    "adults": Data(adults, of_adults, PRINTED_ADULTS, ("NDPMPM", "DPMPM"), 1),
    "families": Data(
        families, of_families, PRINTED_FAMILIES, ("truncated", "untruncated", "rej samp"), 10
    ),
}
CASES = [
    ("adults", 10_000, Fit(partial(bnp.NDPMPM, 30, 10, **PRINTED), False, Chains(5000, 1000, 5),
                           ("printed", "classes kept"))),
    ("families", 10_000, Fit(partial(bnp.NDPMPM, 40, 15, **PRINTED), False, Chains(2000, 1000, 2),
                             ("untruncated", "rejection"))),
    ("families", 10_000, Fit(partial(bnp.NDPMPM, 40, 15, **PRINTED), True, Chains(2000, 1000, 2),
                             ("truncated",))),
    ("adults", 10_000, Fit(bnp.NDPMPM, False, Chains(2000, 1000, 2), ("default",))),
    ("adults", 10_000, Fit(partial(bnp.NPLCM, 50, level_prior="uniform", ordered="none"), False,
                           Chains(1000, 1000), ("persons alone",), 10)),
    ("adults", 50_000, Fit(partial(bnp.NDPMPM, 30, 10, **PRINTED), False, Chains(500, 500),
                           ("printed",), 5)),
    ("families", 50_000, Fit(partial(bnp.NDPMPM, 40, 15, **PRINTED), True, Chains(200, 100),
                             ("truncated",), 5)),
    ("adults", 10_000, Fit(partial(bnp.NDPMPM, 100), False, Chains(500, 500),
                           ("default, 100 classes",), 10)),
    ("families", 10_000, Fit(bnp.NDPMPM, True, Chains(500, 500), ("truncated, default",), 10)),
]  # fmt: skip


def fit(fitted: Fit, design: Design, table: bnp.Households, key: jax.Array) -> bnp.Run:
    """Chains on a sample of households, or of its persons with the size as a variable."""
    model, settings = fitted.model(), fitted.chains.settings()
    if isinstance(model, bnp.NPLCM):
        return bnp.sample(model, as_persons(table), key=key, **settings)
    rules = design.rules if fitted.under_rules else None
    return bnp.sample(model, table, key=key, conditions=rules, **settings)


def as_persons(table: bnp.Households) -> bnp.Microdata:
    """The persons, with the size of their household as a variable."""
    frame = table.to_frame()
    frame["size"] = np.repeat(table.sizes, table.sizes)
    levels = dict(zip(table.schema.table.variables, table.schema.table.levels, strict=True))
    levels["size"] = tuple(sorted(set(table.sizes.tolist())))
    return bnp.Microdata.from_frame(frame.drop(columns="household"), levels=levels)


def files_of(method: str, run: bnp.Run, design: Design, table, number: int, key) -> list:
    """Synthetic files of one method."""
    if method == "persons alone":
        return put_together(run, table, number, key)
    if method == "classes kept":
        return list(with_classes_kept(run, number, key))
    rules = design.rules if method == "rejection" else None
    return bnp.synthesize(run, number, key=key, conditions=rules)


def put_together(run, table, number, key):
    """Persons drawn given the size of a household, put into households of this size at random."""
    parts, first = [[] for _ in range(number)], 0
    for size, count in zip(*np.unique(table.sizes, return_counts=True), strict=True):
        files = bnp.synthesize(
            run, number, int(size * count), key=jax.random.fold_in(key, size),
            given={"size": int(size)},
        )  # fmt: skip
        for part, file in zip(parts, files, strict=True):
            household = first + np.repeat(np.arange(count), size)
            part.append(file.drop(columns="size").assign(household=household))
        first += count
    return [pd.concat(part, ignore_index=True) for part in parts]


def with_classes_kept(run: bnp.Run, number: int, key: jax.Array) -> Iterator[pd.DataFrame]:
    """Files whose households and members keep the classes of the sample, as section 4.1 says.

    The classes are drawn given the parameters and the sample, the values given the classes.
    """
    data = run.model.prepare(run.table)
    sizes = np.sort(run.table.sizes)
    classes = jax.jit(lambda key, draw, data: update_classes(key, SimpleNamespace(**draw), data))
    for i, draw in enumerate(spaced_draws(run, number)):
        key_i = jax.random.fold_in(key, i)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key_i)).tolist())
        g, m, _ = map(np.asarray, classes(key_i, {name: draw[name] for name in NESTED}, data))
        of_member = np.repeat(g, sizes)
        schema = run.table.schema
        codes = _draw(rng, draw["log_lambda"], schema.num_household_levels, (g,))
        members = _draw(rng, draw["log_phi"], schema.num_member_levels, (of_member, m))
        yield bnp.Households(schema, codes, sizes, members).to_frame()


def _draw(rng, log_p, num_levels, classes):
    """(units, variables) codes given classes, from log probabilities (levels, classes..)."""
    columns, first = [], 0
    for size in num_levels:
        p = np.exp(log_p[first : first + size].astype(float))
        cumulative = np.cumsum(p / p.sum(axis=0), axis=0)[(slice(None), *classes)]
        columns.append(np.minimum((rng.random(len(classes[0])) > cumulative).sum(axis=0), size - 1))
        first += size
    return np.stack(columns, axis=1)


def measure(data: str, n: int, fitted: Fit) -> Iterator[dict]:
    """One row for each method and quantity; figures 1 and 2 are drawn on the way."""
    _, quantities, *_, least = DATA[data]
    design = DATA[data].design()
    truth = quantities(design.population.to_frame())["q"]
    table = design.sample(n, seed=0)
    original = quantities(table.to_frame())
    began = time.perf_counter()
    run = fit(fitted, design, table, jax.random.key(1))
    of_chains = diagnostics(run) | {"seconds": time.perf_counter() - began}
    for method in fitted.methods:
        each = 2 * fitted.files_of_chains
        files = files_of(method, run, design, table, each, jax.random.key(2))
        used = files[each // (2 * NUM_FILES) :: each // NUM_FILES]
        name = f"{data}-{n}-{method}".replace(" ", "_").replace(",", "")
        compare_proportions(table, used, least, name)
        estimates = [quantities(file) for file in files]
        q = np.stack([e["q"].reindex(original.index).to_numpy() for e in estimates])
        combined = [estimates[i] for i in range(each // (2 * NUM_FILES), each, each // NUM_FILES)]
        low, high, centre = interval(combined)
        half = 1.96 * np.sqrt(original["u"])
        for i, quantity in enumerate(original.index):
            judged = figures_of(q[:, i].reshape(2, -1))
            yield {
                "data": data, "n": n, "method": method, "quantity": quantity,
                "truth": truth[quantity], "original": original["q"][quantity],
                "original_low": original["q"][quantity] - half[quantity],
                "original_high": original["q"][quantity] + half[quantity],
                "synthetic": centre[i], "low": low[i], "high": high[i],
                "rhat": judged["rhat"], "ess": judged["ess_bulk"],
            } | fitted.chains._asdict() | of_chains  # fmt: skip


def interval(estimates: list[pd.DataFrame]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """95% intervals of Reiter (2003), and their centres, from the estimates of some files."""
    combined = bnp.evaluation.combine_partially_synthetic(
        *(np.stack([e[name].to_numpy() for e in estimates]) for name in ("q", "u"))
    )
    return *combined.interval(), combined.estimate


def diagnostics(run: bnp.Run) -> dict:
    """R-hat and effective draws of what the chains keep, and the number of classes."""
    told = {}
    for name in ("log_likelihood", "components", "alpha", "beta", "augmented"):
        draws = run.draws.get(name)
        if draws is None or draws.ndim != 2 or not np.ptp(draws):
            continue
        figures = figures_of(draws.astype(float))
        told[f"rhat_{name}"], told[f"ess_{name}"] = figures["rhat"], figures["ess_bulk"]
    nan = float("nan")
    names = ("log_likelihood", "components", "alpha", "beta", "augmented")
    kept = {f"{what}_{name}": told.get(f"{what}_{name}", nan)
            for name in names for what in ("rhat", "ess")}  # fmt: skip
    components = run.draws["components"]
    return kept | {
        "mean_components": float(components.mean()),
        "mean_augmented": float(np.mean(run.draws.get("augmented", 0.0))),
        "sweeps_per_second": run.sweeps_per_second,
    }


def compare_proportions(table, files, least, name) -> None:
    """Shares of all one-, two- and three-way cells, drawn and summed up."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = Results(HERE / "proportions.csv", ("case", "ways"))
    schema = table.schema.table
    coded = [bnp.Microdata.from_frame(f[list(schema.variables)], levels=schema) for f in files]
    figure, axes = plt.subplots(1, 3, figsize=(12, 4))
    for ways, axis in zip((1, 2, 3), axes, strict=True):
        x = proportions(table.persons.codes, schema.num_levels, ways)
        y = np.mean([proportions(f.codes, schema.num_levels, ways) for f in coded], axis=0)
        at = x * table.num_persons >= least
        axis.plot(x[at], y[at], ".", ms=2, color="#1f5f8b", rasterized=True)
        axis.plot([0, 1], [0, 1], color="red", lw=0.5)
        axis.set(title=f"{ways}-way", xlabel="original", ylabel="mean of the synthetic files")
        row = {
            "case": name, "ways": ways, "cells": int(at.sum()),
            "correlation": np.corrcoef(x[at], y[at])[0, 1],
            "root_mean_square": np.sqrt(np.mean((x[at] - y[at]) ** 2)),
            "largest": np.abs(x[at] - y[at]).max(),
            "expected": np.sqrt(np.mean(x[at] * (1 - x[at])) * (1 / len(files)) / len(coded[0])),
        }  # fmt: skip
        for _ in results.missing([row]):
            results.append(row)
    figure.tight_layout()
    figure.savefig(HERE / f"{name}.png", dpi=70)
    plt.close(figure)


def tables(rows: pd.DataFrame) -> str:
    """Intervals side by side, with the paper's, and the chains behind them."""
    text = []
    for (data, n), own in rows.groupby(["data", "n"], sort=False):
        text += [f"## {data.capitalize()}, {n:,} households", markdown(_of_sample(data, n, own))]
        first = own.groupby("method", sort=False).first()
        inside = own.assign(
            holds=(own["low"] <= own["truth"]) & (own["truth"] <= own["high"]),
            overlaps=(own["low"] <= own["original_high"]) & (own["original_low"] <= own["high"]),
        )
        counts = inside.groupby("method")[["holds", "overlaps"]].sum()
        worst = own.groupby("method").agg(
            largest_rhat=("rhat", "max"), least_ess=("ess", "min"), quantities=("rhat", "size")
        )
        names = [c for c in first if c.startswith(("rhat_", "ess_", "mean_"))]
        sweeps = (first["warmup"] + first["draws"] * first["thin"]).rename("sweeps")
        chains = pd.concat(
            [sweeps, worst["quantities"], counts, worst[["largest_rhat", "least_ess"]],
             first[[*names, "sweeps_per_second", "seconds"]]], axis=1,
        )  # fmt: skip
        text += [
            "Quantities whose synthetic interval holds the truth, or overlaps the original one; "
            "R-hat and effective draws, of the quantities in single files and of the chains:",
            markdown(chains.T.rename_axis("figure")),
        ]
    proportion_rows = pd.read_csv(HERE / "proportions.csv")
    text += ["## Proportions (figures 1 and 2)", markdown(proportion_rows, index=False)]
    return "\n\n".join(text) + "\n"


def _of_sample(data, n, own):
    """Truth and intervals of one sample by quantity; the paper's columns after ours."""
    first = own.drop_duplicates("quantity").set_index("quantity")
    table = pd.DataFrame({"truth": first["truth"]})
    table["original"] = shown_intervals(first, "original_low", "original_high")
    for method, of_method in own.groupby("method", sort=False):
        table[method] = shown_intervals(of_method.set_index("quantity"), "low", "high")
        table[f"R-hat of {method}"] = of_method.set_index("quantity")["rhat"]
    if n == 10_000:
        printed = DATA[data].printed
        for k, name in enumerate(("truth", "original", *DATA[data].models)):
            table[f"paper: {name}"] = pd.Series({q: printed[q][k] for q in first.index})
    elif data == "adults":
        for k, name in enumerate(("original", "NDPMPM")):
            shown = {q: PRINTED_50000[q][k] if q in PRINTED_50000 else "" for q in first.index}
            table[f"paper: {name}"] = pd.Series(shown)
    table.index.name = "quantity"
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no chain later than this")
    parser.add_argument("--only-tables", action="store_true", help="leave out the other scripts")
    args = parser.parse_args()
    path = HERE / "results.csv"
    results = Results(path, ("data", "n", "method", "quantity"), args.minutes)
    by_case = {}
    for data, n, fitted in CASES:
        last = list(DATA[data].printed)[-1]
        by_case[data, n, fitted.methods[-1], last] = data, n, fitted
    cases = [dict(zip(("data", "n", "method", "quantity"), k, strict=True)) for k in by_case]
    for case in results.missing(cases):
        for row in list(measure(*by_case[tuple(case.values())])):
            results.append(row)
        print({k: v for k, v in row.items() if k != "quantity"}, flush=True)
        jax.clear_caches()
        (HERE / "tables.md").write_text(tables(pd.read_csv(path)))
    (HERE / "tables.md").write_text(tables(pd.read_csv(path)))
    if not args.only_tables:
        limit = [] if args.minutes is None else ["--minutes", str(args.minutes)]
        for script in ("coverage.py", "attack.py", "scale.py"):
            subprocess.run([sys.executable, HERE / script, *limit], check=True)


if __name__ == "__main__":
    main()
