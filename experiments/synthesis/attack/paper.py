"""The attack of Manrique-Vallier & Hu (2018, section 3.2) under structural zeros.

    python experiments/synthesis/attack/paper.py --warmup 10000 --thin 40     # n = 1,000
    python experiments/synthesis/attack/paper.py --rows 10000 --warmup 4000 --thin 16

Chains of TNPLCM with the paper's priors on a sample of the bundled census population, five files
drawn at random, chains that are fitted again with each file, and the attack on every record that is
unique in the sample. The chains keep checkpoints, so that the same command goes on where it was
stopped. Writes a folder (n1000): tables.md, at_risk.csv and ranks.png.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import bnp_models as bnp
from bnp_models.data.contingency import common_cells
from bnp_models.inference.convergence import figures_of

HERE = Path(__file__).parent
CONDITIONS = HERE.parent / "repeated_sampling" / "conditions.csv"
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import markdown  # noqa: E402

FILES, CHAINS = 5, 4
PAPER = {1: 0.0021, 2: 0.0104}
"""tau_k in print: shares of all records of the sample."""


def fitted(args, model, table, zeros, folder):
    """The run on the sample, its files, and the run with each of the files added."""
    how = {
        "conditions": zeros, "num_chains": CHAINS, "num_warmup": args.warmup, "thin": args.thin,
        "num_samples": args.draws // CHAINS, "resume": True, "checkpoint_seconds": 60,
    }  # fmt: skip
    run = bnp.sample(model, table, key=jax.random.key(0), checkpoint=folder / "sample", **how)
    told("the sample", run)
    files = bnp.synthesize(run, FILES)
    refits = []
    for m, file in enumerate(files):
        key, checkpoint = jax.random.key(1 + m), folder / f"file{m}"
        refits += bnp.evaluation.refit(model, table, file, key=key, checkpoint=checkpoint, **how)
        told(f"the sample and file {m + 1}", refits[-1])
    return run, files, refits


def told(what, run):
    figures = figures_of(run.draws["log_likelihood"])
    print(
        f"{what}: {sum(run.seconds.values()):.0f} s, log-likelihood R-hat {figures['rhat']:.3f}, "
        f"{figures['ess_bulk']:.0f} effective draws",
        flush=True,
    )


def changed(risk, codes):
    """(A, C, J) codes of every candidate, the truth first; a candidate that is none as the truth.

    Also (A, C) the variable in which each differs.
    """
    schema = risk.table.schema
    candidates = np.repeat(codes[:, None], risk.rho.shape[1], axis=1)
    variable = [0, *(schema.variables.index(name) for name, _ in risk.columns)]
    for c, (name, label) in enumerate(risk.columns, start=1):
        j = schema.variables.index(name)
        code = schema.levels[j].index(label)
        candidates[:, c, j] = np.where(np.isfinite(risk.rho[:, c]), code, codes[:, j])
    return candidates, np.array(variable)


def priors(risk, population):
    """(A, C) prior odds of every candidate against the truth, for intruders who know more."""
    table, num_levels = risk.table, risk.table.schema.num_levels
    codes = table.codes[risk.rows]
    candidates, variable = changed(risk, codes)
    places = np.arange(len(variable))

    def margins(known, own):
        # Half a person is added to each level, since a person may be the only one with a level.
        odds = np.empty(risk.rho.shape)
        counts = [
            np.bincount(x, minlength=m) + 0.5 for x, m in zip(known.T, num_levels, strict=True)
        ]
        for c, j in zip(places, variable, strict=True):
            truth = counts[j][codes[:, j]] - own
            odds[:, c] = np.where(
                candidates[:, c, j] == codes[:, j], 1, counts[j][candidates[:, c, j]] / truth
            )
        return odds

    every = bnp.Microdata(table.schema, candidates.reshape(-1, candidates.shape[2]))
    in_population = frequencies(every, population).reshape(risk.rho.shape)
    return {
        "none: all candidates alike (the paper)": np.ones(risk.rho.shape),
        "margins of the other records": margins(table.codes, 1),
        "margins of the population": margins(population.codes, 0),
        "all cells of the population": in_population / in_population[:, :1],
    }


def frequencies(table, population):
    """Persons of the population in the cell of each record."""
    cells, counts = common_cells([population, table])
    of_cell = {cell.tobytes(): count for cell, count in zip(cells, counts[0], strict=True)}
    return np.array([of_cell[record.astype(cells.dtype).tobytes()] for record in table.codes])


def ranks(rho):
    """Candidates above the truth, which is the first, and those as likely as it."""
    truth = rho[:, :1]
    above = (rho[:, 1:] > truth * (1 + 1e-9)).sum(axis=1)
    return above, (np.abs(rho[:, 1:] - truth) <= 1e-9 * truth).sum(axis=1)


def intruders(risk, population):
    """What intruders with each prior guess, before they see the files and after.

    Candidates that are alike have their ranks at random, and numbers of records are expectations.
    """
    rows, after = [], {}
    for name, odds in priors(risk, population).items():
        row = {"prior of the intruder": name}
        for when, likelihood in (("before", np.where(np.isfinite(risk.rho), 1, np.nan)),
                                 ("after", risk.rho)):  # fmt: skip
            rho = odds * likelihood
            rho /= np.nansum(rho, axis=1, keepdims=True)
            above, alike = ranks(rho)
            for k in (1, 2):
                within = np.clip((k - above) / (1 + alike), 0, 1).sum()
                row[f"truth within {k}, {when}"] = f"{within:.1f}"
            row[f"mean probability, {when}"] = f"{rho[:, 0].mean():.4f}"
            after[name] = 1 + above + alike / 2
        rows.append(row)
    return pd.DataFrame(rows), after


def taus(risk, n):
    """tau_k by both denominators, beside the paper's."""
    rows = []
    for k in (1, 2, 3):
        at = risk.top.index(k)
        open_, ranked = int(risk.at_risk[:, at].sum()), int((risk.rank <= k).sum())
        rows.append({
            "k": k, "estimated rank at most k": ranked, "cannot be ruled out": open_,
            "ranked / n": f"{ranked / n:.4f}", "not ruled out / n": f"{open_ / n:.4f}",
            "paper, / n": f"{PAPER[k]:.4f}" if k in PAPER else "-",
            "ranked / attacked": f"{ranked / len(risk.rows):.4f}",
            "not ruled out / attacked (the program's tau)": f"{open_ / len(risk.rows):.4f}",
            "blind guess, / attacked": f"{np.minimum(k / risk.num_candidates, 1).mean():.4f}",
        })  # fmt: skip
    return pd.DataFrame(rows)


def convergence(run, refits, risk):
    """R-hat and effective draws of every run: of the fit, alpha, and the likelihood of its file."""
    rows = []
    for m, chains in enumerate((run, *refits)):
        row = {"chains on": "the sample" if not m else f"the sample and file {m}"}
        values = {name: chains.draws[name] for name in ("log_likelihood", "alpha", "components")}
        if m:
            values["of file"] = risk.log_likelihood[FILES + m - 1]
        for name, value in values.items():
            figures = figures_of(value.astype(float))
            row |= {f"{name}: R-hat": figures["rhat"], f"{name}: ess": figures["ess_bulk"]}
        row["seconds"] = sum(chains.seconds.values())
        rows.append(row)
    for m, values in enumerate(risk.log_likelihood[:FILES]):
        figures = figures_of(values)
        rows.append({
            "chains on": f"the sample: likelihood of file {m + 1}",
            "of file: R-hat": figures["rhat"], "of file: ess": figures["ess_bulk"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def write(args, run, refits, risks, population, out):
    out.mkdir(parents=True, exist_ok=True)
    parts, n = [], run.table.n
    for risk in risks:
        summary = risk.summary()
        parts.append(
            f"## {risk.estimator}\n\n{len(risk.rows):,} unique records of {n:,}, "
            f"{summary['draws']} draws, {risk.num_candidates.mean():.1f} candidates each. Typical "
            f"standard error of log odds {summary['standard_error']:.2g}, mean probability of the "
            f"truth {summary['rho']['mean']:.4f} (before the files "
            f"{summary['rho']['mean_before']:.4f}), largest {summary['rho']['max']:.3f}.\n\n"
            + markdown(taus(risk, n), index=False)
            + "".join(f"\n\n> {warning}" for warning in summary["warnings"]) + "\n"
        )  # fmt: skip
    best = risks[0]
    known, places = intruders(best, population)
    parts.append(f"## Intruders with other priors\n\n{markdown(known, index=False)}\n")
    parts.append(f"## Chains\n\n{markdown(convergence(run, refits, best), index=False)}\n")
    sweeps = f"{args.warmup:,} + {args.thin} x {args.draws // CHAINS:,}"
    title = f"# {n:,} records, {CHAINS} chains of {sweeps} sweeps\n"
    (out / "tables.md").write_text("\n".join([title, *parts]))
    listed = best.records()
    table = bnp.Microdata(best.table.schema, best.table.codes[listed["row"]])
    listed["population_frequency"] = frequencies(table, population)
    listed[listed["at_risk"]].drop(columns="row").to_csv(
        out / "at_risk.csv", index=False, float_format="%.4g"
    )
    draw(best, places, out / "ranks.png")


def draw(risk, places, path):
    """Histograms of the rank of the truth, as a share of the candidates."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    for axis, (name, place) in zip(figure.subplots(2, 2).flat, places.items(), strict=True):
        axis.hist((place - 0.5) / risk.num_candidates, bins=20, range=(0, 1), color="#1f5f8b")
        axis.axhline(len(place) / 20, color="0.5", lw=0.8, ls="--")
        axis.set_title(name, fontsize=9)
    figure.supxlabel("rank of the truth, as a share of the candidates", fontsize=9)
    figure.supylabel("records", fontsize=9)
    figure.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000, help="records of the sample")
    parser.add_argument("--warmup", type=int, default=2000, help="sweeps")
    parser.add_argument("--draws", type=int, default=1000, help="of all chains")
    parser.add_argument("--thin", type=int, default=8)
    parser.add_argument("--components", type=int, default=50)
    args = parser.parse_args()
    people = bnp.datasets.census_income()
    population = bnp.Microdata.from_frame(people.frame)
    table = bnp.Microdata.from_frame(people.sample(args.rows, seed=0), levels=population.schema)
    zeros = bnp.read_conditions(CONDITIONS, table.schema)
    model = bnp.TNPLCM(args.components, level_prior="uniform", ordered="none")
    settings = f"n{args.rows}_k{args.components}_{args.warmup}_{args.draws}x{args.thin}"
    run, files, refits = fitted(args, model, table, zeros, HERE / "chains" / settings)
    risks = []
    for known in (refits, None):
        began = time.perf_counter()
        risks.append(
            bnp.attack_risk(
                run, table, files, key=jax.random.key(9), refits=known, max_draws=args.draws
            )
        )
        print(f"attack by {risks[-1].estimator}: {time.perf_counter() - began:.0f} s", flush=True)
    write(args, run, refits, risks, population, HERE / f"n{args.rows}")


if __name__ == "__main__":
    main()
