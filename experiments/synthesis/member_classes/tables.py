"""Relations within the households of a file, and tables of the rows of `run.py`: tables.md.

python experiments/synthesis/member_classes/tables.py
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / name) for name in ("accuracy/known_truth", "papers/households")]
from results import markdown  # noqa: E402

CASE = ["data", "relative", "classes", "member_components", "seed", "chains", "warmup", "draws"]
GROUPS = {
    "Prediction of held-out households, and relations within synthetic ones": [
        "households", "held_out", "log_predictive", "less_nested", "standard_error",
        "worst_chain", "best_chain", "overlaps", "covers", "quantities",
    ],
    "Chains": [
        "cpu", "sweeps_cpu_second", "rhat_log_likelihood", "rhat_margin", "rhat_alpha",
        "ess_margin_least", "ess_margin_median", "ess_median_cpu_second", "components",
        "last_member_class", "augmented",
    ],
    "Mean log-likelihood of each chain, second half of the draws": ["log_likelihood"],
}  # fmt: skip


def relations_within(data, table, files):
    """Interval of each quantity from synthetic files, beside that of the data."""
    estimate = pairs if data == "simulated" else _census_quantities()
    original = estimate(table.to_frame())
    each = [estimate(file) for file in files]
    combined = bnp.evaluation.combine_partially_synthetic(
        *(np.stack([file[name] for file in each]) for name in ("q", "u"))
    )
    low, high = combined.interval()
    q, half = original["q"], 1.96 * np.sqrt(original["u"])
    frame = pd.DataFrame(
        {"original": q, "original_low": q - half, "original_high": q + half,
         "synthetic": combined.estimate, "low": low, "high": high},
        index=pd.Index(original.index, name="quantity"),
    )  # fmt: skip
    frame["covers"] = ((low <= q) & (q <= high)).astype(int)
    frame["overlaps"] = ((low <= q + half) & (q - half <= high)).astype(int)
    return frame


def _census_quantities():
    # Imported only here, because it loads the bundled files.
    import importlib.util

    path = HERE.parents[1] / "papers" / "households" / "run.py"
    spec = importlib.util.spec_from_file_location("households_of_papers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.quantities


def pairs(frame):
    """Estimates and variances for households without relationships; frame "q" and "u"."""
    frame = frame.assign(age=pd.to_numeric(frame["age"]))
    by = frame.groupby("hid")
    size, oldest, youngest = by.size(), by["age"].max(), by["age"].min()
    two, more = size == 2, size > 2
    rows = {
        f"one {name}, 2 persons": share((by[name].nunique() == 1)[two])
        for name in ("gender", "citizenship", "ecoStat")
    }
    rows["one citizenship, 3 and more"] = share((by["citizenship"].nunique() == 1)[more])
    rows["a person under 15"] = share(youngest < 15)
    rows["all over 60"] = share(youngest > 60)
    rows["exactly one main earner"] = share(
        frame["main"].astype(str).eq("True").groupby(frame["hid"]).sum() == 1
    )
    couple = pd.concat([oldest, youngest], axis=1)[two & (youngest >= 18)]
    r = couple.corr().iloc[0, 1]
    rows["correlation of two adults' ages"] = r, (1 - r**2) ** 2 / len(couple)
    for label, own in (
        ("two adults' ages", two & (youngest >= 18)), ("ages, with a child", youngest < 15),
    ):  # fmt: skip
        gap = (oldest - youngest)[own]
        rows[f"mean difference of {label}"] = gap.mean(), gap.var() / len(gap)
        rows[f"spread of the difference of {label}"] = gap.std(), gap.var() / (2 * len(gap))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["q", "u"])


def share(mask):
    q = mask.mean()
    return q, q * (1 - q) / len(mask)


def tables(rows, heldout):
    """Text of tables.md: each case beside nested classes on the same households."""
    rows = rows.assign(less_nested=np.nan, standard_error=np.nan)
    each = {
        case: own.set_index("household")["log_p"] for case, own in heldout.groupby(CASE, sort=False)
    }
    at = [CASE.index(name) for name in ("classes", "member_components")]
    for i, case in zip(rows.index, rows[CASE].itertuples(index=False, name=None), strict=True):
        other = list(case)
        other[at[0]], other[at[1]] = "nested", 15
        if tuple(other) in each:
            gain = each[case] - each[tuple(other)]
            rows.loc[i, "less_nested"] = gain.sum()
            rows.loc[i, "standard_error"] = gain.std() * np.sqrt(len(gain))
    text = ["# Nested and shared member classes"]
    for title, columns in GROUPS.items():
        text += [f"## {title}", markdown(rows[CASE + columns], index=False)]
    return "\n\n".join(text) + "\n"


def write():
    """Write tables.md from what is there."""
    made = [pd.read_csv(HERE / f"{name}.csv") for name in ("results", "heldout")]
    (HERE / "tables.md").write_text(tables(*made))


if __name__ == "__main__":
    write()
