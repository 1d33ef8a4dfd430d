"""Prior of the correction for overdispersion: fitted to populations, tested by leaving one out.

    python experiments/accuracy/layer_prior/fit.py CHAINS FOLDER --nist FILE

CHAINS has the files of `chains.py sample`. For some draws of each sample's chains, the likelihood
of every pair (shape, exponent) of the grid is evaluated twice: for the sample's own counts, as in
`bnp-models risk`, and for the counts of the population in the cells of the sample, which only we
know. The second likelihood gives the pair that the population needs. The prior is a t distribution
that is fitted to these pairs, one for each population. For the test it is fitted without the
population in question (the two census populations count as one).

The script writes laws.csv (the pair of each sample), results.csv (tau_1 and tau_2 of each sample,
with the correction before and now) and table.md.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import gammaln

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "risk_peers"))
from samples import populations  # noqa: E402

from bnp_models.data.cells import group_cells  # noqa: E402
from bnp_models.risk import overdispersion  # noqa: E402
from bnp_models.risk.overdispersion import GRID, MODEL_HOLDS, OverdispersionPosterior  # noqa: E402
from bnp_models.synthesis.predictive_checks import MAX_Z  # noqa: E402

DRAWS, LAYER_DRAWS = 12, 12
# Persons of one census are in both.
GROUPS = {"adults": "census", "all": "census"}
LOG10_SHAPE = np.log10(GRID[0])


def read(path, frame):
    """One sample: counts of its cells, the population's, and the model's probabilities."""
    _, n, seed = path.stem.rsplit("-", 2)
    n, seed = int(n), int(seed)
    codes = np.stack([frame[name].cat.codes for name in frame], axis=1).astype(np.int32)
    sizes = tuple(int(x) + 1 for x in codes.max(axis=0))
    rows = np.sort(np.random.default_rng((seed, n)).choice(len(frame), n, replace=False))
    cells = group_cells(codes[rows], sizes)
    place = [np.ravel_multi_index(x.T.astype(np.int64), sizes) for x in (codes, cells.codes)]
    in_population = pd.Series(place[0]).value_counts().reindex(place[1]).to_numpy()
    stored = np.load(path)
    sample = {"n": n, "seed": seed, "size": len(frame), "f": cells.counts, "F": in_population}
    for variant in ("none", "auto"):
        log_b = stored[f"log_b_{variant}"].astype(float)
        unseen = stored[f"unseen_{variant}"].astype(float)
        # Of chains that were stopped early the second half.
        half = log_b.shape[1] // 2 if stored["sweeps"] <= 900 else 0
        log_b, unseen = log_b[:, half:], unseen[:, half:]
        b = np.exp(log_b.reshape(-1, log_b.shape[-1]))
        chosen = np.linspace(0, len(b) - 1, min(len(b), DRAWS)).astype(int)
        sample[variant] = b[chosen], np.exp(unseen[np.isfinite(unseen)])[:600]
    return sample


def of_population(b, f, in_population, size):
    """Log likelihood (G,) of the population's counts given the sample's, in the sample's cells."""
    shape = GRID[0][:, None] * (f.sum() * b) ** GRID[1][:, None]
    odds = (size - f.sum()) * b / (shape + f.sum() * b)
    log_one_more, more = np.log1p(odds), (in_population - f).astype(float)
    terms = gammaln(more + shape + f) - gammaln(shape + f) - (shape + f) * log_one_more
    return np.sum(terms + more * (np.log(odds) - log_one_more), axis=1)


def likelihoods(path, sample):
    """Log likelihoods (2, draws, G) of sample and population by variant, kept with the chains."""
    kept = path.parent / "likelihoods" / path.name
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        found = {}
        for variant in ("none", "auto"):
            b, unseen = sample[variant]
            layer, counts = (
                OverdispersionPosterior(sample["f"], unseen),
                (sample["f"], sample["F"], sample["size"]),
            )
            pairs = [(layer.log_likelihood(x), of_population(x, *counts)) for x in b]
            found[variant] = np.moveaxis(pairs, 1, 0)
        np.savez(kept, **found)
    return dict(np.load(kept))


def t_law(targets, spread=1.1, degrees=overdispersion.DEGREES_OF_FREEDOM, hold=None):
    """Log prior (G,) fitted to pairs of log10 shape and exponent, one of each population."""
    hold = overdispersion.PROBABILITY_MODEL_HOLDS if hold is None else hold
    at, scale = targets.mean(axis=0), spread * targets.std(axis=0, ddof=1)
    grid = np.stack([LOG10_SHAPE, GRID[1]], axis=1)
    density = (1 + (((grid - at) / scale) ** 2).sum(axis=1) / degrees) ** (-(degrees + 2) / 2)
    density[-1] = 0
    with np.errstate(divide="ignore"):
        return np.log(np.where(GRID[0] < MODEL_HOLDS, (1 - hold) * density / density.sum(), hold))


def half_on_the_model():
    """Log prior (G,) that there was before: one half that the model holds."""
    weight = np.full(len(GRID[0]), 0.5 / (len(GRID[0]) - 1))
    weight[-1] = 0.5
    return np.log(weight)


def draw_taus(rng, b, sample, chosen):
    """tau_1 and tau_2 for pairs of the grid, given the model's probabilities of one draw."""
    n, size, of_unique = sample["n"], sample["size"], b[sample["f"] == 1]
    shape = GRID[0][chosen][:, None] * (n * of_unique) ** GRID[1][chosen][:, None]
    tied = of_unique * rng.standard_gamma(shape + 1) / (shape + n * of_unique)
    p = np.where(GRID[0][chosen][:, None] < MODEL_HOLDS, tied, of_unique)
    joined = rng.poisson((size - n) * p)
    return (joined == 0).sum(axis=1), (1 / (1 + joined)).sum(axis=1)


def judge(sample, variant, log_likelihood, log_prior, power):
    """Rows of tau_1 and tau_2: truth, mean, 95% interval and its score."""
    rng = np.random.default_rng((0, sample["n"], sample["seed"]))
    draws = []
    for b, log_l in zip(sample[variant][0], log_likelihood, strict=True):
        log_p = log_prior + power * log_l
        p = np.exp(log_p - log_p.max())
        draws.append(draw_taus(rng, b, sample, rng.choice(len(p), LAYER_DRAWS, p=p / p.sum())))
    alone = sample["F"][sample["f"] == 1]
    rows = []
    truths = (np.sum(alone == 1), np.sum(1 / alone))
    for name, truth, values in zip(("tau1", "tau2"), truths, np.hstack(draws), strict=True):
        low, high = np.quantile(values, [0.025, 0.975])
        score = high - low + 40 * (max(low - truth, 0) + max(truth - high, 0))
        rows.append({"tau": name, "truth": truth, "mean": values.mean(), "q025": low,
                     "q975": high, "score": score})  # fmt: skip
    return rows


def z_of_uniques(sample, variant, half=slice(None)):
    """Sample uniques less those that the model expects, in standard deviations, nearly."""
    n, (b, unseen) = sample["n"], sample[variant]
    b = b[half]
    of_seen = np.sum(n * b * (1 - b) ** (n - 1), axis=1)
    of_unseen = n * np.maximum(1 - b.sum(axis=1), 0) * np.mean((1 - unseen) ** (n - 1))
    # Counts of cells are nearly independent, and a unique is less variable than a Poisson count.
    expected = of_seen + of_unseen
    return (np.sum(sample["f"] == 1) - expected.mean()) / np.sqrt(
        0.3 * expected.mean() + expected.var()
    )


def verdicts(samples, rows):
    """How often the check of uniques passes, how often an interval then misses, and agreement."""
    found = []
    for way, variant in (("before", "none"), ("now", "auto")):
        passes, agree, missed = [], [], []
        of_way = rows[(rows.way == way) & (rows.tau == "tau1")]
        held = of_way.q025.le(of_way.truth) & of_way.truth.le(of_way.q975)
        for (sample, _), holds in zip(samples, held, strict=True):
            middle = len(sample[variant][0]) // 2
            z = [z_of_uniques(sample, variant, half) for half in
                 (slice(None), slice(middle), slice(middle, None))]  # fmt: skip
            ok = np.abs(z) <= MAX_Z
            passes.append(ok[0])
            agree.append(ok[1] == ok[2])
            missed += [not holds] * int(ok[0])
        found.append({"way": way, "said": np.mean(passes), "then missed": np.mean(missed),
                      "halves of the chains agree": np.mean(agree)})  # fmt: skip
    return pd.DataFrame(found).round(3)


def summary(rows, by):
    """Coverage, errors and scores, by columns."""
    rows = rows.assign(
        held=rows.q025.le(rows.truth) & rows.truth.le(rows.q975),
        error=rows["mean"] / rows.truth - 1, relative_score=rows.score / rows.truth,
    )  # fmt: skip
    found = rows.groupby(by).agg(
        samples=("held", "size"), held=("held", "mean"), error=("error", "mean"),
        score=("score", "mean"), relative_score=("relative_score", "mean"),
    )  # fmt: skip
    return found.round(3).reset_index()


def markdown(frame):
    """A table."""
    lines = ["| " + " | ".join(frame.columns) + " |", "|" + "---|" * len(frame.columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chains", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nist", type=Path)
    args = parser.parse_args()
    samples, laws, held = {}, [], []
    for name, frame in populations(args.folder, args.nist):
        frame = frame.astype("category")
        for path in sorted(args.chains.glob(f"{name}-[0-9]*-*.npz")):
            sample = read(path, frame)
            both = likelihoods(path, sample)
            samples[name, path] = sample, both
            none, auto, *_ = np.load(path)["held_out"].mean(axis=1)
            held.append({"population": name, "n": sample["n"], "none": none, "auto": auto})
            for variant in ("none", "auto"):
                of_pairs = both[variant][1].mean(axis=0)
                best = np.argmax(of_pairs[:-1])
                laws.append({
                    "population": name, "n": sample["n"], "seed": sample["seed"],
                    "ordered": variant, "log10_shape": round(LOG10_SHAPE[best], 3),
                    "exponent": GRID[1][best], "gain": round(of_pairs[best] - of_pairs[-1], 1),
                    "share_of_uniques": np.mean(sample["f"] == 1).round(3),
                })  # fmt: skip
        print(name, flush=True)
    laws = pd.DataFrame(laws)
    laws.to_csv(HERE / "laws.csv", index=False)
    auto = laws[laws.ordered == "auto"].assign(group=lambda x: x.population.replace(GROUPS))
    targets = auto.groupby("group")[["log10_shape", "exponent"]].mean()
    rows = []
    for (name, _), (sample, both) in samples.items():
        others = targets.drop(GROUPS.get(name, name)).to_numpy()
        ways = {
            "before": ("none", half_on_the_model(), 1.0),
            "before, ordered": ("auto", half_on_the_model(), 1.0),
            "now": ("auto", t_law(others), overdispersion.LIKELIHOOD_POWER),
            "now, power 0": ("auto", t_law(others), 0.0),
            "now, power 1": ("auto", t_law(others), 1.0),
        }
        for way, (variant, log_prior, power) in ways.items():
            rows += [
                {"population": name, "n": sample["n"], "seed": sample["seed"], "way": way, **row}
                for row in judge(sample, variant, both[variant][0], log_prior, power)
            ]
    rows = pd.DataFrame(rows)
    rows.round(2).to_csv(HERE / "results.csv", index=False)
    held = pd.DataFrame(held).assign(better=lambda x: x.auto > x.none)
    held = held.groupby(["population", "n"]).mean().round(3).reset_index()
    every = targets.to_numpy()
    at, scale = every.mean(axis=0), 1.1 * every.std(axis=0, ddof=1)
    parts = [
        "Shape and exponent that populations need", markdown(targets.round(2).reset_index()),
        f"Location and scale over populations: log10 of the shape {at[0]:.2f}, {scale[0]:.2f}; "
        f"exponent {at[1]:.2f}, {scale[1]:.2f}.",
        "All samples", markdown(summary(rows, ["tau", "way"])),
        "By size", markdown(summary(rows[rows.way.isin(["before", "now"])], ["tau", "n", "way"])),
        "By population",
        markdown(summary(rows[rows.way.isin(["before", "now"])], ["tau", "population", "way"])),
        "Verdicts by the number of sample uniques", markdown(verdicts(samples.values(), rows)),
        "Mean log probability of 400 other persons, without and with bands of ordered levels, and "
        "the share of samples that bands predict better", markdown(held),
    ]  # fmt: skip
    (HERE / "table.md").write_text("\n\n".join(parts) + "\n")
    print(parts[4], parts[6], sep="\n")


if __name__ == "__main__":
    main()
