"""The paper's protocol on the bundled population: risk of cells against the truth.

    python experiments/papers/polettini_stander/run.py

Stratified samples of unequal probabilities, ten of them; every method's risk against 1 / F. Writes
results.csv (a line per sample and method), tables.md and the figures. Full Bayes is done for the
first sample only; `--long bayes counts` adds the Dirichlet-multinomial-multinomial model there,
which takes ten minutes more.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from protocol import Drawn, draw

import bnp_models as bnp
from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import markdown  # noqa: E402

UNSAFE = 0.05
FIXED = {"Model I, paper's values": 1, "Model II, paper's values": 2}
# Model I grey and Model II black, as in the paper.
SHOWN = {
    "as in the paper": ("Model I, paper's values", "Model II, paper's values"),
    "empirical Bayes": ("Model I, empirical Bayes", "Model II, empirical Bayes"),
}


def estimates(drawn: Drawn, seed: int, long: tuple[str, ...]):
    """Name, risk and P(F = 1) of each method, and what there is to say of it."""
    cells = drawn.cells
    key = jax.random.key(seed)
    for name, variant in FIXED.items():
        model = bnp.PolettiniStander(variant)
        result = bnp.cell_risk(model, cells, key=key, num_samples=1)
        yield (
            name,
            result.risk,
            result.p_unique,
            f"log-likelihood {model.log_likelihood(cells):.0f}",
        )
    for variant in (1, 2):
        name = f"Model {'I' * variant}, empirical Bayes"
        try:
            fitted = bnp.fit_empirical_bayes(bnp.PolettiniStander(variant), cells)
        except bnp.NoMaximumError as error:
            yield name, None, None, str(error)
            continue
        result = bnp.cell_risk(fitted.model, cells, key=key, num_samples=1)
        values = ", ".join(f"{k} {v:.3g}" for k, v in fitted.model.hyperparameters.items())
        note = f"{values}; log-likelihood {fitted.log_likelihood:.0f}"
        yield name, result.risk, result.p_unique, note
    yield (
        "Benedetti-Franconi", bnp.risk.benedetti_franconi_risk(cells),
        np.where(cells.f == 1, cells.phat, 0), "",
    )  # fmt: skip
    for structure, name in (
        ("independence", "log-linear, main effects"), ("two-way", "log-linear, two-way"),
    ):  # fmt: skip
        fitted = bnp.loglinear_risk(cells, structure=structure)
        note = f"{fitted.sweeps} sweeps over {fitted.support} cells" if fitted.sweeps else ""
        yield name, fitted.risk, fitted.p_unique, note
    if "bayes" not in long:
        return
    for variant in (1, 2):
        model = bnp.PolettiniStander(variant)
        began = time.perf_counter()
        draws = bnp.sample_hyperparameters(
            model, cells, key=key, num_chains=4, num_warmup=500, num_samples=250
        )
        result = bnp.cell_risk(model, cells, key=key, draws=draws)
        rhat = max(figures_of(v)["rhat"] for v in draws.values.values())
        values = ", ".join(f"{k} {v.mean():.3g}" for k, v in draws.values.items())
        note = f"means {values}; R-hat {rhat:.3f}; {time.perf_counter() - began:.0f} s"
        yield f"Model {'I' * variant}, full Bayes", result.risk, result.p_unique, note
    if "counts" not in long:
        return
    began = time.perf_counter()
    run = bnp.models.sample_population_counts(
        cells, key=key, num_chains=2, num_warmup=600, num_samples=100, thin=2
    )
    rhat = max(figures_of(run.draws[name])["rhat"] for name in ("alpha", "a", "tau2"))
    note = (
        f"means alpha {run.draws['alpha'].mean():.3g}, a {run.draws['a'].mean():.3g}; R-hat "
        f"{rhat:.2f}; accepted {run.accepted:.2f}; {time.perf_counter() - began:.0f} s"
    )
    yield "Dirichlet-multinomial-multinomial", run.risk, run.p_unique, note


def row_of(drawn, seed, name, risk, p_unique, note):
    """The classifier's table and the sums over sample uniques, against the truth."""
    true = 1 / drawn.truth
    unique = drawn.cells.f == 1
    row = {
        "seed": seed, "method": name, "cells": len(true), "unsafe": int((true > UNSAFE).sum()),
        "sample_uniques": int(unique.sum()), "true_tau1": int((unique & (true == 1)).sum()),
        "true_tau2": round(true[unique].sum(), 2),
    }  # fmt: skip
    if risk is None:
        return row | {"note": note}
    flagged, unsafe = risk > UNSAFE, true > UNSAFE
    return row | {
        "missed": int((~flagged & unsafe).sum()), "false_alarms": int((flagged & ~unsafe).sum()),
        "tau1": round(p_unique[unique].sum(), 2), "tau2": round(risk[unique].sum(), 2),
        "mean_squared_error": round(float(np.mean((risk - true) ** 2)), 5),
        "rank_correlation": round(float(pd.Series(risk).corr(pd.Series(true), "spearman")), 3),
        "note": note,
    }  # fmt: skip


def classifier_tables(drawn, found):
    unsafe = 1 / drawn.truth > UNSAFE
    lines = []
    for name, risk in found.items():
        flagged = risk > UNSAFE
        lines.append({
            "method": name,
            "safe, called safe": int((~flagged & ~unsafe).sum()),
            "unsafe, called safe": int((~flagged & unsafe).sum()),
            "safe, called unsafe": int((flagged & ~unsafe).sum()),
            "unsafe, called unsafe": int((flagged & unsafe).sum()),
        })  # fmt: skip
    return markdown(pd.DataFrame(lines), index=False)


def scatter(drawn, found, path):
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
                    axis.loglog(x, found[name][chosen], ".", ms=3, color=colour, label=name)
            axis.axline((1e-3, 1e-3), (1, 1), color="#1f5f8b", lw=0.8)
            axis.axhline(UNSAFE, color="#c8672b", lw=0.6, ls=":")
            axis.axvline(UNSAFE, color="#c8672b", lw=0.6, ls=":")
            axis.set_title(f"{region}, {title}", fontsize=9)
            axis.legend(frameon=False, fontsize=7, loc="upper left")
    figure.supxlabel("true risk 1 / F")
    figure.supylabel("estimated risk")
    figure.savefig(path, dpi=110)


def calibration(pooled, path):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--long", nargs="*", choices=("bayes", "counts"),
                        default=["bayes"])  # fmt: skip
    args = parser.parse_args()
    population = bnp.datasets.census_income(adults=True)
    rows, pooled, first = [], {}, None
    for seed in range(args.samples):
        drawn = draw(population, seed)
        found = {}
        for name, risk, p_unique, note in estimates(
            drawn, seed, long=args.long if seed == 0 else ()
        ):
            rows.append(row_of(drawn, seed, name, risk, p_unique, note))
            print(rows[-1], flush=True)
            if risk is not None:
                found[name] = risk
                pooled.setdefault(name, []).append(np.stack([risk, 1 / drawn.truth]))
        if first is None:
            first = drawn, found
            scatter(drawn, found, HERE / "risks.png")
    results = pd.DataFrame(rows)
    results.to_csv(HERE / "results.csv", index=False)
    calibration({k: v for k, v in pooled.items() if len(v) > 1}, HERE / "calibration.png")
    columns = ["cells", "unsafe", "missed", "false_alarms", "true_tau1", "tau1", "true_tau2",
               "tau2", "mean_squared_error", "rank_correlation"]  # fmt: skip
    means = results[results["missed"].notna()].groupby("method", sort=False)[columns].mean()
    means.insert(0, "samples", results[results["missed"].notna()].groupby("method").size())
    notes = results[results["seed"] == 0][["method", "note"]]
    text = (
        f"First sample; a cell is unsafe if its risk is above {UNSAFE}:\n\n"
        f"{classifier_tables(*first)}\n\n"
        f"Means over samples:\n\n{markdown(means)}\n\n"
        f"Notes on the first sample:\n\n{markdown(notes[notes['note'] != ''], index=False)}\n"
    )
    (HERE / "tables.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
