"""The paper's protocol on the bundled population: risk of cells against the truth.

    python experiments/papers/polettini_stander/run.py

Stratified samples of unequal probabilities, ten of them; every method's risk against 1 / F. Writes
results.csv (a line per sample and method), tables.md and the figures. Full Bayes, by chains, and
with `--long bayes counts` the Dirichlet-multinomial model are fitted to the first sample only.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from protocol import LARGE, SMALL, Drawn, draw

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import markdown  # noqa: E402

UNSAFE = 0.05
CLASSES = (
    "safe, called safe", "unsafe, called safe", "safe, called unsafe", "unsafe, called unsafe",
)  # fmt: skip
# Tables 1 and 2 of the paper.
PAPER = {"Model I, in the paper": (312, 109, 0, 0), "Model II, in the paper": (231, 5, 81, 104)}
# Model I grey and Model II black, as in the paper.
SHOWN = {
    "the paper's values": ("Model I, paper's values", "Model II, paper's values"),
    "empirical Bayes": ("Model I, empirical Bayes", "Model II, empirical Bayes, strata"),
}


class Found(NamedTuple):
    """What a method says of a sample."""

    risk: np.ndarray
    """(D,) E(1 / F) of each non-empty cell."""
    p_unique: np.ndarray
    """(D,) P(F = 1)."""
    draws: dict[str, np.ndarray] = {}
    """Draws of tau1 and tau2, if there are any."""


def models(drawn: Drawn) -> dict[str, bnp.PolettiniStander]:
    """Models whose hyperparameters are estimated, by name.

    Section 7.1 of the paper averages the log-likelihood of an empty cell over the two fractions,
    weighted by their shares among the non-empty cells. "strata" is the default of the program: each
    empty cell has the fraction of its stratum. "pooled": each has that of the whole sample.
    """
    small = float(drawn.small.mean())
    mixture = (LARGE, 1 - small), (SMALL, small)
    return {
        "Model I, {}": bnp.PolettiniStander(1),
        "Model II, {}, section 7.1": bnp.PolettiniStander(2, empty_phat=mixture),
        "Model II, {}, strata": bnp.PolettiniStander(2),
        "Model II, {}, pooled": bnp.PolettiniStander(2, empty_phat=((drawn.cells.pooled_phat, 1),)),
    }


def of_cells(result: bnp.results.CellRisk) -> Found:
    return Found(result.risk, result.p_unique, {"tau1": result.tau1, "tau2": result.tau2})


def convergence(draws: dict[str, np.ndarray]) -> str:
    """Largest R-hat and fewest effective draws."""
    figures = [figures_of(values) for values in draws.values()]
    rhat, bulk, tail = (
        (max if name == "rhat" else min)(f[name] for f in figures)
        for name in ("rhat", "ess_bulk", "ess_tail")
    )
    return f"R-hat {rhat:.3f}, {bulk:.0f} effective draws in the bulk and {tail:.0f} in the tails"


def quick(drawn: Drawn, key: jax.Array) -> Iterator[tuple[str, Found | None, str]]:
    """Name, result and a note of each method without chains."""
    cells = drawn.cells
    for variant in (1, 2):
        model = bnp.PolettiniStander(variant)
        note = f"log-likelihood {model.log_likelihood(cells):.0f}"
        name = f"Model {'I' * variant}, paper's values"
        yield name, of_cells(bnp.cell_risk(model, cells, key=key)), note
    for name, model in models(drawn).items():
        name = name.format("empirical Bayes")
        try:
            fitted = bnp.fit_empirical_bayes(model, cells)
        except bnp.NoMaximumError as error:
            yield name, None, str(error)
            continue
        values = ", ".join(f"{k} {v:.3g}" for k, v in fitted.model.hyperparameters.items())
        note = f"{values}; log-likelihood {fitted.log_likelihood:.0f}"
        yield name, of_cells(bnp.cell_risk(fitted.model, cells, key=key)), note
    risk = bnp.risk.benedetti_franconi_risk(cells)
    yield "Benedetti-Franconi", Found(risk, np.where(cells.f == 1, cells.phat, 0)), ""
    for structure, name in (("independence", "main effects"), ("two-way", "two-way")):
        fitted = bnp.loglinear_risk(cells, structure=structure)
        note = f"{fitted.sweeps} sweeps over {fitted.support} cells" if fitted.sweeps else ""
        yield f"log-linear, {name}", Found(fitted.risk, fitted.p_unique), note


def full_bayes(drawn: Drawn, key: jax.Array) -> Iterator[tuple[str, Found, str]]:
    """Name, result and a note of full Bayes."""
    for name, model in models(drawn).items():
        if name.endswith("pooled"):
            continue
        began = time.perf_counter()
        draws = bnp.sample_hyperparameters(
            model, drawn.cells, key=key, num_chains=4, num_warmup=300, num_samples=200
        )
        result = bnp.cell_risk(model, drawn.cells, key=key, draws=draws)
        values = ", ".join(f"{k} {v.mean():.3g}" for k, v in draws.values.items())
        watched = draws.values | {"tau1": result.tau1, "tau2": result.tau2}
        seconds = time.perf_counter() - began
        note = f"means {values}; {convergence(watched)}; {seconds:.0f} s"
        yield name.format("full Bayes"), of_cells(result), note


def known_total(drawn: Drawn, key: jax.Array) -> Iterator[tuple[str, Found, str]]:
    """Name, result and a note of the Dirichlet-multinomial model."""
    began = time.perf_counter()
    run = bnp.models.sample_population_counts(drawn.cells, key=key)
    taus = {name: run.draws[name] for name in ("tau1", "tau2")}
    note = (
        f"means alpha {run.draws['alpha'].mean():.3g}, a {run.draws['a'].mean():.3g}; "
        f"{convergence(run.draws)}; {time.perf_counter() - began:.0f} s"
    )
    yield "Dirichlet-multinomial", Found(run.risk, run.p_unique, taus), note


def estimates(
    population: bnp.datasets.Population, samples: int, long: list[str]
) -> Iterator[tuple[int, Drawn, Iterator[tuple[str, Found | None, str]]]]:
    """Seed, sample, and name, result (None without an estimate) and note of each method.

    All samples come first; then the first sample again, for the methods that take minutes.
    """
    for seed in range(samples):
        drawn = draw(population, seed)
        yield seed, drawn, quick(drawn, jax.random.key(seed))
    drawn, key = draw(population, 0), jax.random.key(0)
    if "bayes" in long:
        yield 0, drawn, full_bayes(drawn, key)
    if "counts" in long:
        yield 0, drawn, known_total(drawn, key)


def row_of(drawn: Drawn, seed: int, name: str, found: Found | None, note: str) -> dict:
    """The classifier's errors and the sums over sample uniques, against the truth."""
    true = 1 / drawn.truth
    unique, unsafe = drawn.cells.f == 1, true > UNSAFE
    truths = {"tau1": int((unique & (true == 1)).sum()), "tau2": round(true[unique].sum(), 2)}
    row = {
        "seed": seed, "method": name, "cells": len(true), "unsafe": int(unsafe.sum()),
        "sample_uniques": int(unique.sum()), "true_tau1": truths["tau1"],
        "true_tau2": truths["tau2"],
    }  # fmt: skip
    if found is None:
        return row | {"note": note}
    risk, flagged = found.risk, found.risk > UNSAFE
    row |= {
        "missed": int((~flagged & unsafe).sum()), "false_alarms": int((flagged & ~unsafe).sum()),
        "tau1": round(found.p_unique[unique].sum(), 2), "tau2": round(risk[unique].sum(), 2),
        "mean_squared_error": round(float(np.mean((risk - true) ** 2)), 5),
        "rank_correlation": round(float(pd.Series(risk).corr(pd.Series(true), "spearman")), 3),
    }  # fmt: skip
    for tau, draws in found.draws.items():
        low, high = np.quantile(draws, [0.025, 0.975]).round(2)
        row |= {f"{tau}_low": low, f"{tau}_high": high, f"{tau}_held": low <= truths[tau] <= high}
    return row | {"note": note}


def classifier_table(drawn: Drawn, found: dict[str, Found], chosen: np.ndarray) -> str:
    """Tables 1 and 2 of the paper, for the chosen cells."""
    unsafe = (1 / drawn.truth > UNSAFE)[chosen]
    lines = []
    for name, one in found.items():
        flagged = (one.risk > UNSAFE)[chosen]
        pairs = ((~flagged, ~unsafe), (~flagged, unsafe), (flagged, ~unsafe), (flagged, unsafe))
        counts = (int((said & is_so).sum()) for said, is_so in pairs)
        lines.append({"method": name, **dict(zip(CLASSES, counts, strict=True))})
    return markdown(pd.DataFrame(lines), index=False)


def scatter(drawn: Drawn, found: dict[str, Found], path: Path) -> None:
    """Estimated against true risk on log axes, by region: figure 1 of the paper."""
    figure = Figure(figsize=(9, 8), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    true = 1 / drawn.truth
    random = np.random.default_rng(0)
    for line, (title, names) in zip(axes, SHOWN.items(), strict=True):
        for axis, (region, chosen) in zip(
            line, (("small regions", drawn.small), ("large regions", ~drawn.small)), strict=True
        ):
            for name, colour in zip(names, ("#a0a0a0", "black"), strict=True):
                if name in found:
                    # A little apart, where many cells have the same values.
                    x = true[chosen] * np.exp(random.normal(0, 0.04, chosen.sum()))
                    risk = found[name].risk[chosen]
                    axis.loglog(x, risk, ".", ms=3, color=colour, label=name)
            axis.axline((1e-3, 1e-3), (1, 1), color="#1f5f8b", lw=0.8)
            axis.axhline(UNSAFE, color="#c8672b", lw=0.6, ls=":")
            axis.axvline(UNSAFE, color="#c8672b", lw=0.6, ls=":")
            axis.set_title(f"{region}, {title}", fontsize=9)
            axis.legend(frameon=False, fontsize=7, loc="upper left")
    figure.supxlabel("true risk 1 / F")
    figure.supylabel("estimated risk")
    figure.savefig(path, dpi=110)


def calibration(pooled: dict[str, list[np.ndarray]], path: Path) -> None:
    """Mean true risk among cells of about the same estimated risk, all samples together."""
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axis = figure.subplots()
    edges = np.logspace(-3, 0, 13)
    for name, pairs in pooled.items():
        risk, true = np.concatenate(pairs, axis=1)
        of_bin = np.digitize(risk, edges)
        kept = [b for b in range(len(edges) + 1) if (of_bin == b).sum() >= 30]
        x = [risk[of_bin == b].mean() for b in kept]
        y = [true[of_bin == b].mean() for b in kept]
        axis.loglog(x, y, "o-", ms=4, lw=1, label=name)
    axis.axline((1e-2, 1e-2), (1, 1), color="black", lw=0.8, ls=":")
    axis.set_xlabel("estimated risk, mean of the group")
    axis.set_ylabel("true risk 1 / F, mean of the group")
    axis.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=110)


def write_tables(results: pd.DataFrame, drawn: Drawn, found: dict[str, Found]) -> None:
    """tables.md, with tables 1 and 2 for the first sample."""
    columns = ["cells", "unsafe", "missed", "false_alarms", "true_tau1", "tau1", "tau1_held",
               "true_tau2", "tau2", "tau2_held", "mean_squared_error",
               "rank_correlation"]  # fmt: skip
    estimated = results[results["missed"].notna()]
    estimated = estimated.assign(**{
        name: estimated[name].astype(float) for name in ("tau1_held", "tau2_held")
    })  # fmt: skip
    means = estimated.groupby("method", sort=False)[columns].mean()
    means.insert(0, "samples", estimated.groupby("method").size())
    notes = results[(results["seed"] == 0) & (results["note"] != "")][["method", "note"]]
    paper = pd.DataFrame(PAPER.values(), pd.Index(PAPER, name="method"), CLASSES)
    every = np.ones(len(drawn.truth), bool)
    text = (
        f"A cell is unsafe if 1 / F is above {UNSAFE}, and called unsafe if its risk is.\n\n"
        f"Tables 1 and 2 of the paper:\n\n{markdown(paper)}\n\n"
        f"The same here, cells of the small regions of the first sample:\n\n"
        f"{classifier_table(drawn, found, drawn.small)}\n\n"
        f"All cells of the first sample:\n\n{classifier_table(drawn, found, every)}\n\n"
        "Means over samples; \"held\" is the share of samples whose 95% interval contains the "
        f"truth, of those with an interval:\n\n{markdown(means)}\n\n"
        f"Notes on the first sample:\n\n{markdown(notes, index=False)}\n"
    )  # fmt: skip
    (HERE / "tables.md").write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--long", nargs="*", choices=("bayes", "counts"),
                        default=["bayes"])  # fmt: skip
    args = parser.parse_args()
    population = bnp.datasets.census_income(adults=True)
    rows, pooled, first, of_first = [], {}, None, {}
    # Everything is written after each sample, so that a run that is stopped leaves what it has.
    for seed, drawn, methods in estimates(population, args.samples, args.long):
        first = first or drawn
        for name, found, note in methods:
            rows.append(row_of(drawn, seed, name, found, note))
            print(rows[-1], flush=True)
            if found is not None:
                pooled.setdefault(name, []).append(np.stack([found.risk, 1 / drawn.truth]))
                if seed == 0:
                    of_first[name] = found
        results = pd.DataFrame(rows)
        results.to_csv(HERE / "results.csv", index=False)
        write_tables(results, first, of_first)
        scatter(first, of_first, HERE / "risks.png")
        several = {name: pairs for name, pairs in pooled.items() if len(pairs) > 1}
        calibration(several, HERE / "calibration.png")


if __name__ == "__main__":
    main()
