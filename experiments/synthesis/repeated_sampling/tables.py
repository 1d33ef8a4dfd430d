"""Tables and figures of the replications; `run.py` and `trees.py` call this."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from proportions import ThreeWay

import bnp_models as bnp

HERE = Path(__file__).parent
SOURCES = {"original": "original sample", "tnplcm": "TNPLCM", "nplcm": "NPLCM"}
TREES = {
    "trees": "trees, synthpop's", "stopped_trees": "trees, the paper's",
    "forests": "forests, synthpop's", "voting_forests": "forests, votes",
}  # fmt: skip
ESTIMANDS_SHOWN = 2000
JITTER = 0.005


class Performance(NamedTuple):
    """How point estimates and 95% intervals of E proportions did; (E,) means over replications."""

    mean: np.ndarray
    """Of the estimate."""
    square: np.ndarray
    """Of the squared error."""
    covered: np.ndarray
    """Coverage, an interval from 0 to 0 taken as one like any other."""
    covered_wide: np.ndarray
    """Coverage by intervals that are wider than nothing."""
    wide: np.ndarray
    """Share of these."""
    width: np.ndarray
    """Of the interval, as far as it lies between 0 and 1."""


def judge(estimate, interval, truth) -> Performance:
    """One replication."""
    low, high = (np.clip(end, 0, 1) for end in interval)
    covered, wide = (low <= truth) & (truth <= high), high > low
    return Performance(estimate, (estimate - truth) ** 2, covered, covered & wide, wide, high - low)


def performances(
    files, n, truth, sources=tuple(SOURCES)
) -> tuple[dict[str, Performance], dict[str, np.ndarray]]:
    """Combine each replication's files; return how each source did, and facts about the runs."""
    total, about = {}, {}
    for path in files:
        with np.load(path) as replication:
            facts = {name: replication[name] for name in replication}
        for name in sources:
            q = facts.pop(name) / n
            u = q * (1 - q) / n
            with np.errstate(invalid="ignore"):
                combined = (
                    {name: bnp.results.Combined(q, u, np.inf)} if name == "original" else
                    {name: bnp.evaluation.combine_partially_synthetic(q, u),
                     f"{name}_fully": bnp.evaluation.combine_fully_synthetic(q, u)}
                )  # fmt: skip
            for key, c in combined.items():
                one = judge(c.estimate, c.interval(), truth)
                if key in total:
                    one = Performance(*map(np.add, total[key], np.asarray(one, float)))
                total[key] = Performance(*np.asarray(one, float))
        for name, value in facts.items():
            about.setdefault(name, []).append(value)
    found = {key: Performance(*(x / len(files) for x in sums)) for key, sums in total.items()}
    return found, {name: np.stack(values) for name, values in about.items()}


def markdown(header, rows) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


class Estimands(NamedTuple):
    """All cells of three-way tables, in the population."""

    table: np.ndarray
    """Table of each cell."""
    counts: np.ndarray
    truth: np.ndarray
    """Proportion."""
    impossible: np.ndarray
    with_zeros: np.ndarray
    """Whether the table of the cell has structural zeros."""


def estimands() -> Estimands:
    population = bnp.Microdata.from_frame(bnp.datasets.census_income().frame)
    three_way = ThreeWay(population.schema)
    zeros = bnp.read_conditions(HERE / "conditions.csv", population.schema)
    counts = three_way.counts(population.codes)
    impossible = three_way.impossible(zeros)
    if counts[impossible].any():
        raise SystemExit("the population has records in a structural zero")
    with_zeros = np.isin(three_way.table, three_way.table[impossible])
    return Estimands(three_way.table, counts, counts / population.n, impossible, with_zeros)


def write(files: list[Path], n: int, out: Path) -> None:
    """Write table.md, summary.json, estimates.png and coverage.png."""
    table, counts, truth, impossible, with_zeros = estimands()
    found, about = performances(files, n, truth)

    coverable = with_zeros & ~impossible
    positive, common = coverable & (counts > 0), coverable & (n * truth >= 10)
    groups = {
        "in tables with structural zeros": coverable,
        "of these, not zero in the population": positive,
        "of these, expected sample count 10 or more": common,
        "in all 120 tables, expected count 10 or more": ~impossible & (n * truth >= 10),
    }
    summary = {
        "replications": len(files), "n": n, "estimands": len(truth),
        "tables_with_structural_zeros": len(np.unique(table[impossible])),
        "estimands_in_them": int(with_zeros.sum()),
        "structural_zeros": int(impossible.sum()),
        "population_zeros_in_them": int((with_zeros & (counts == 0)).sum()),
        "random_zeros_in_them": int((coverable & (counts == 0)).sum()),
    }  # fmt: skip
    coverage_rows = []

    def add_coverage(group, sources, chosen, wide_only=False):
        for name in sources:
            use = chosen & (found[name].wide > 0) if wide_only else chosen
            covered = found[name].covered[use]
            if wide_only:
                covered = found[name].covered_wide[use] / found[name].wide[use]
            use = use & (found["original"].width > 0)
            width = found[name].width[use] / found["original"].width[use]
            coverage_rows.append((
                group if name == sources[0] else "", SOURCES[name.removesuffix("_fully")],
                f"{len(covered):,}", f"{100 * np.mean(covered > 0.8):.1f}",
                f"{100 * np.mean(covered > 0.9):.1f}", f"{100 * covered.mean():.1f}",
                f"{np.median(width):.2f}",
            ))  # fmt: skip

    for group, chosen in groups.items():
        add_coverage(group, tuple(SOURCES), chosen)
    everything = next(iter(groups))
    add_coverage(
        f"{everything}; replications whose interval has no width left out", tuple(SOURCES),
        coverable, wide_only=True,
    )  # fmt: skip
    for group in (everything, "of these, expected sample count 10 or more"):
        add_coverage(
            f"{group}; rule for fully synthetic data", ("tnplcm_fully", "nplcm_fully"),
            groups[group],
        )  # fmt: skip
    error = np.sqrt(truth * (1 - truth) / n)
    accuracy_rows = []
    for name, title in SOURCES.items():
        e = found[name]
        bias = e.mean - truth
        accuracy_rows.append((
            title,
            f"{1e5 * np.mean(bias[positive]):+.2f}", f"{1e5 * np.mean(np.abs(bias[positive])):.2f}",
            f"{np.median(np.abs(bias[common]) / error[common]):.2f}",
            f"{np.quantile(np.abs(bias[common]) / error[common], 0.95):.2f}",
            f"{np.median(np.sqrt(e.square[common]) / error[common]):.2f}",
            f"{np.sum(e.mean[impossible] > 0):,}",
        ))  # fmt: skip
    for name in ("tnplcm", "nplcm"):
        records = about[f"{name}_impossible"]
        summary[name] = {
            "records": int(records.size * n), "impossible_records": int(records.sum()),
            "components": float(about[f"{name}_components"].mean()),
            "last_class": int(about[f"{name}_last_class"].max()),
            "median_seconds": float(np.median(about[f"{name}_seconds"])),
            "mean_feasible": float(np.exp(about[f"{name}_log_feasible"]).mean()),
        }  # fmt: skip
        share = records.sum() / (records.size * n)
        accuracy_rows = [
            (*row, f"{records.sum():,} ({share:.2%})") if row[0] == SOURCES[name] else row
            for row in accuracy_rows
        ]
    accuracy_rows[0] = (*accuracy_rows[0], "0")

    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    (out / "table.md").write_text(
        markdown(("estimands", "intervals from", "number", "coverage above 80%, % of them",
                  "above 90%", "mean coverage, %", "width / original's, median"), coverage_rows)
        + "\n\n"
        + markdown(("estimates from", "mean bias, 1e-5", "mean absolute bias, 1e-5",
                    "absolute bias / standard error: median", "95% quantile",
                    "root mean square error / standard error, median",
                    "structural zeros met",
                    "impossible records made"), accuracy_rows) + "\n"
    )  # fmt: skip
    rng = np.random.default_rng(0)
    draw_estimates(found, truth, impossible, np.flatnonzero(with_zeros), rng, out / "estimates.png")
    draw_coverage(found, np.flatnonzero(coverable), rng, out / "coverage.png")


TREES_PAPER = {
    "original": "98.4, 91.8", "stopped_trees": "89.3, 74.5", "voting_forests": "64.3, 49.3",
}  # fmt: skip
"""Shares of intervals with a coverage above 80% and 90% in print."""


def write_trees(files: dict[str, list[Path]], n: int, out: Path) -> None:
    """Write trees.md, and figures of trees as the paper's 1b and 2b."""
    of = estimands()
    coverable = of.with_zeros & ~of.impossible
    common = coverable & (n * of.truth >= 10)
    error = np.sqrt(of.truth * (1 - of.truth) / n)
    every, rows = {}, []
    for maker, paths in files.items():
        if not paths:
            continue
        found, about = performances(paths, n, of.truth, ("original", maker))
        every |= {maker: found[maker]} if "original" in every else found
        for name in ("original", maker):
            e, title = found[name], SOURCES.get(name) or TREES[name]
            wide = coverable & (e.wide > 0)
            row = [title, len(paths)]
            for covered in (e.covered[coverable], e.covered_wide[wide] / e.wide[wide],
                            e.covered[common]):  # fmt: skip
                above = [f"{100 * np.mean(covered > level):.1f}" for level in (0.8, 0.9)]
                row.append(", ".join(above))
            bias = np.abs(e.mean - of.truth)[common] / error[common]
            row += [TREES_PAPER.get(name, "-"), f"{100 * e.covered[common].mean():.1f}",
                    f"{np.median(bias):.2f}", f"{np.quantile(bias, 0.95):.2f}"]  # fmt: skip
            if name == "original":
                row += ["-", "-", "-"]
            else:
                row += [f"{about['impossible'].mean():.1f}", f"{about['recurring'].mean():.3f}",
                        f"{np.median(about['seconds']):.1f}"]  # fmt: skip
            # The samples are the same, unless there are fewer of them.
            if row not in rows:
                rows.append(row)
    header = ("files of", "samples", "coverage above 80%, 90%: % of the intervals",
              "no width left out", "expected count 10 or more", "paper",
              "mean coverage, expected count 10 or more",
              "absolute bias / standard error, the same: median", "95% quantile",
              "impossible records a file", "share of the sample's unique records in a file",
              "seconds")  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "trees.md").write_text(markdown(header, rows) + "\n")
    rng, names = np.random.default_rng(0), ("stopped_trees", "trees")
    if all(name in every for name in names):
        draw_estimates(every, of.truth, of.impossible, np.flatnonzero(of.with_zeros), rng,
                       out / "trees_estimates.png", names)  # fmt: skip
        draw_coverage(every, np.flatnonzero(coverable), rng, out / "trees_coverage.png", names)


def draw_estimates(
    found, truth, impossible, estimands, rng, path, names=("tnplcm", "nplcm")
) -> None:
    """Mean estimate against truth: as it is, and with the small ones spread out."""
    shown = rng.permutation(estimands)[:ESTIMANDS_SHOWN]
    figure = Figure(figsize=(8, 7.6), layout="constrained")
    axes = figure.subplots(2, 2)
    for column, name in enumerate(names):
        for row, axis in enumerate(axes[:, column]):
            for chosen, colour, label in (
                (shown[~impossible[shown]], "#1f5f8b", "possible"),
                (shown[impossible[shown]], "#c0392b", "structural zero"),
            ):
                axis.plot(truth[chosen], found[name].mean[chosen], ".", ms=3, color=colour,
                          alpha=0.6, label=label, clip_on=False)  # fmt: skip
            top = 1.05 * truth[estimands].max()
            axis.plot([0, top], [0, top], color="0.6", lw=0.8, zorder=0)
            if row:
                for set_scale in (axis.set_xscale, axis.set_yscale):
                    set_scale("symlog", linthresh=1e-5)
            axis.set_xlim(0, top)
            axis.set_ylim(0, top)
            title = (SOURCES | TREES)[name] + (", small ones spread out" if row else "")
            axis.set_title(title, fontsize=10)
    axes[0, 0].legend(fontsize=8, markerscale=3)
    figure.supxlabel("proportion in the population", fontsize=10)
    figure.supylabel("mean estimate from synthetic data", fontsize=10)
    figure.savefig(path, dpi=100)


def draw_coverage(found, estimands, rng, path, names=("tnplcm", "nplcm")) -> None:
    """Coverage of synthetic data's intervals against that of the original samples'."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    for axis, name in zip(figure.subplots(1, 2), names, strict=True):
        x, y = (
            found[source].covered[estimands] + rng.uniform(-JITTER, JITTER, len(estimands))
            for source in ("original", name)
        )
        axis.plot(x, y, ".", ms=2, color="#1f5f8b", alpha=0.5)
        axis.axhline(0.95, color="0.4", lw=0.8, ls="--")
        axis.axvline(0.95, color="0.4", lw=0.8, ls="--")
        axis.set_xlim(-0.02, 1.02)
        axis.set_ylim(-0.02, 1.02)
        axis.set_title((SOURCES | TREES)[name], fontsize=10)
    figure.supxlabel("coverage, original samples", fontsize=10)
    figure.supylabel("coverage, synthetic data", fontsize=10)
    figure.savefig(path, dpi=100)
