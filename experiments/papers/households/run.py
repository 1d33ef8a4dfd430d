"""Relations within households, in the original and in synthetic data.

    python experiments/papers/households/run.py               # resumes; writes the tables
    python experiments/papers/households/run.py --minutes 10  # begins no chain later

The quantities are of the kind of table 4 of Hu, Reiter & Wang (2018, doi:10.1214/16-BA1047).
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.cli.inputs import prior_possible_of
from bnp_models.inference.convergence import figures_of
from bnp_models.rules.census import census_relationships

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import Results, markdown, shown_intervals  # noqa: E402

NUM_FILES = 5
CHAINS = {"num_chains": 2, "num_warmup": 1000, "num_samples": 2000}
CLASSES = {"member_classes": "nested", "components": 20, "member_components": 10}
# A learned prior of levels makes more classes of households.
MORE_CLASSES = CLASSES | {"components": 40}
UNIFORM = {"level_prior": "uniform"}
RELATIVE = {"relative": ["age", "race"]}
# Variables and relationships in which members are like their heads, as the command chooses them.
CHOSEN = "chosen"
# Member classes that household classes share, in the default numbers.
DEFAULT = {"member_classes": "shared"}

SPOUSE = ("Husband/wife",)
CHILD = ("Natural born child", "Biological child", "Adopted child", "Stepchild")
PARENT = ("Father/mother", "Parent-in-law")
SIBLING = ("Brother/sister",)
GRANDCHILD = ("Grandchild",)

DATA = {
    "Southeast Michigan": bnp.datasets.southeast_michigan_households,
    "Bay Area": bnp.datasets.bay_area_households,
}
# Head at household level, under the rules, and how the model differs from the printed one.
METHODS = {
    "truncated": (False, True, UNIFORM),
    "head at household level": (True, True, UNIFORM),
    "rules ignored": (False, False, UNIFORM),
    "persons alone": (False, False, UNIFORM),
    "relative": (True, True, RELATIVE | UNIFORM),
    "learned": (True, True, {}),
    "relative, learned": (True, True, RELATIVE),
    "relative, ordered": (True, True, RELATIVE | {"ordered": ("age",)}),
    "default": (True, True, DEFAULT),
    "default, relative": (True, True, DEFAULT | RELATIVE),
    "default, chosen": (True, True, DEFAULT | {"relative": CHOSEN}),
}
# The last quantity of every file: where it is there, so are the others.
LAST = "spread of the head's age less the children's, years"


def quantities(frame: pd.DataFrame) -> pd.DataFrame:
    """Estimates and their variances from one file of persons, as if it were a sample.

    Returns
    -------
    frame
        Columns "q" and "u", by quantity.
    """
    relate, household = frame["relate"].astype(str), frame["household"]
    size = frame.groupby("household").size()

    def any_of(labels):
        return relate.isin(labels).groupby(household).any()

    def first(labels, column):
        own = frame[relate.isin(labels)]
        return own.groupby("household")[column].first()

    head = ("Householder",)
    spouse, child, parent = any_of(SPOUSE), any_of(CHILD), any_of(PARENT)
    grandchild = any_of(GRANDCHILD)
    alone = any_of(head) & child & ~spouse
    rows = {
        "spouse present": share(spouse),
        "only mother with children": share(
            alone & first(head, "sex").eq("Female").reindex(size.index, fill_value=False)
        ),
        "only one parent with children": share(alone),
        "at least one child": share(child),
        "at least one parent": share(parent),
        "at least one sibling": share(any_of(SIBLING)),
        "at least one grandchild": share(grandchild),
        "three generations": share((parent & child) | (child & grandchild)),
    }
    ages = couples(first(head, "age"), first(SPOUSE, "age"))
    if "race" in frame:
        one_race = frame.groupby("household")["race"].nunique() == 1
        for n in (2, 3, 4):
            rows[f"all of one race, {n} persons"] = share(one_race[size == n])
        races = couples(first(head, "race"), first(SPOUSE, "race"))
        same = (races.iloc[:, 0] == races.iloc[:, 1]).reindex(size.index, fill_value=False)
        rows["couple of one race"] = share(same)
    r = ages.astype(float).corr().iloc[0, 1]
    rows["correlation of couples' ages"] = r, (1 - r**2) ** 2 / len(ages)
    between = ages.iloc[:, 0] - ages.iloc[:, 1]
    rows["spread of the head's age less the spouse's, years"] = (
        between.std(), between.var() / (2 * len(between))
    )  # fmt: skip
    young = frame[relate.isin(CHILD)].groupby("household")["age"].mean()
    gap = (first(head, "age") - young).dropna()
    rows["mean of the head's age less the children's, years"] = gap.mean(), gap.var() / len(gap)
    rows[LAST] = gap.std(), gap.var() / (2 * len(gap))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["q", "u"])


def couples(first, second):
    """The values of head and spouse of the households that have both."""
    return pd.concat([first, second], axis=1, join="inner")


def share(mask):
    q = mask.mean()
    return q, q * (1 - q) / len(mask)


def synthetic(table, rules, method, key):
    """Five files, and what is to be said of the chains."""
    began = time.perf_counter()
    if method == "persons alone":
        # The variables of the household are those of its persons; the number of persons is not.
        frame = table.to_frame().drop(columns=["household", "persons"])
        persons = bnp.Microdata.from_frame(frame)
        run = bnp.sample(bnp.NPLCM(50, level_prior="uniform"), persons, key=key, **CHAINS)
        number = np.sort(table.sizes)
        files = bnp.synthesize(run, NUM_FILES)
        for file in files:
            file.insert(0, "household", np.repeat(np.arange(number.size), number))
    else:
        _, under_rules, options = METHODS[method]
        if options.get("relative") == CHOSEN:
            relative = bnp.models.relative_to_heads(table)
            possible = prior_possible_of(table.n)
            options = options | {"relative": relative, "prior_possible": possible}
        elif "relative" in options:
            known = table.schema.member_variables
            options = options | {"relative": [v for v in options["relative"] if v in known]}
        if "member_classes" not in options:
            options = options | (CLASSES if "level_prior" in options else MORE_CLASSES)
        run = bnp.sample(
            bnp.NDPMPM(**options), table, key=key,
            conditions=rules if under_rules else None, **CHAINS,
        )  # fmt: skip
        files = bnp.synthesize(run, NUM_FILES)
    of_chains = {
        f"{what}_{name}": figures_of(run.draws[name])[what]
        for name in ("log_likelihood", "components")
        for what in ("rhat", "ess_bulk")
    }
    of_chains["mean_components"] = float(run.draws["components"].mean())
    if "augmented" in run.draws:
        of_chains["augmented"] = float(run.draws["augmented"].mean())
        of_chains["most_last_class"] = int(run.draws["last_class"].max())
    else:
        of_chains |= {"augmented": 0.0, "most_last_class": 0}
    return files, of_chains | {"seconds": time.perf_counter() - began}


def measure(data, method):
    """One row for each quantity."""
    source = DATA[data](distinct=True)
    table = source.households(head=METHODS[method][0])
    rules = census_relationships(table)
    table = table.select(rules.check(table))
    original = quantities(table.to_frame())
    files, of_chains = synthetic(table, rules, method, jax.random.key([*METHODS].index(method)))
    each = [quantities(file) for file in files]
    combined = bnp.evaluation.combine_partially_synthetic(
        *(np.stack([file[name] for file in each]) for name in ("q", "u"))
    )
    low, high = combined.interval()
    half = 1.96 * np.sqrt(original["u"])
    for i, name in enumerate(original.index):
        q = original["q"][name]
        yield {
            "data": data, "method": method, "quantity": name, "households": table.n, "original": q,
            "original_low": q - half[name], "original_high": q + half[name],
            "synthetic": float(combined.estimate[i]), "low": float(low[i]), "high": float(high[i]),
            "chains": CHAINS["num_chains"], "warmup": CHAINS["num_warmup"],
            "draws": CHAINS["num_samples"],
        } | of_chains  # fmt: skip


def tables(rows):
    """Intervals side by side, and the chains behind them."""
    text = []
    for data, own in rows.groupby("data", sort=False):
        n = own["households"].iloc[0]
        table = pd.DataFrame(index=own["quantity"].unique())
        first = own.drop_duplicates("quantity").set_index("quantity")
        table["original"] = first["original"]
        table["95% interval"] = shown_intervals(first, "original_low", "original_high")
        for method, of_method in own.groupby("method", sort=False):
            table[method] = shown_intervals(of_method.set_index("quantity"), "low", "high")
        table.index.name = "quantity"
        inside = own.assign(
            covers=(own["low"] <= own["original"]) & (own["original"] <= own["high"]),
            overlaps=(own["low"] <= own["original_high"]) & (own["original_low"] <= own["high"]),
        )
        chains = own.groupby("method", sort=False).first().join(
            inside.groupby("method")[["covers", "overlaps"]].sum()
        )  # fmt: skip
        chains = chains[
            ["covers", "overlaps", "rhat_log_likelihood", "ess_bulk_log_likelihood",
             "rhat_components", "mean_components", "augmented", "most_last_class", "seconds"]
        ]  # fmt: skip
        text += [
            f"## {data}, {n:,} households", markdown(table),
            "Quantities whose synthetic interval covers the original value, or overlaps its "
            "interval; convergence of the chains:", markdown(chains),
        ]  # fmt: skip
    return "\n\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--minutes", type=float, help="begin no chain later than this")
    args = parser.parse_args()
    path = HERE / "results.csv"
    results = Results(path, ("data", "method", "quantity"), args.minutes)
    cases = [{"data": d, "method": m, "quantity": LAST} for d in DATA for m in args.methods]
    for case in results.missing(cases):
        for row in measure(case["data"], case["method"]):
            results.append(row)
        print({k: v for k, v in row.items() if k not in ("quantity",)}, flush=True)
        jax.clear_caches()
        (HERE / "tables.md").write_text(tables(pd.read_csv(path)))


if __name__ == "__main__":
    main()
