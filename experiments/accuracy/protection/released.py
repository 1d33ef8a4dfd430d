"""What can be read back from twenty protected files, by the columns that are released with them.

    python experiments/accuracy/protection/released.py POPULATIONS

Samples of 1,000 of three populations: the bundled census, and residents and workers of the folder
POPULATIONS. Beside the key variables each has columns that say nearly the same as one of them, and
a column that identifies. Each is protected once, until it is 3-anonymous or 2-anonymous, by the
search of `bnp.protect` (k-anonymity needs no chains), and released in three ways: with all columns,
as protect wrote it at first; with the key variables alone, the default; and with these columns
linked. Writes released.csv and released.md; a run goes on where it was stopped.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

import bnp_models as bnp
from bnp_models.risk.anonymity import Anonymity
from bnp_models.risk.protected_risks import patterns
from bnp_models.risk.protection import _next_towards
from bnp_models.risk.rare_combinations import Rows
from bnp_models.risk.recoding import Recoded, ordered_variables
from bnp_models.risk.released import release
from bnp_models.risk.units import Targets, Units
from bnp_models.risk.verdict import Limits, Verdict

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "known_truth"))
from results import Results, markdown  # noqa: E402

N, SURE = 1000, 0.9
TARGETS = ((3, 0.1), (2, 0.2))


def people_of(name, folder):
    """A population: its records, key variables, and columns beside them by key variable."""
    if name == "census":
        frame = bnp.datasets.census_income(adults=True).frame.astype(str)
        frame["education_code"] = 100 + 3 * pd.factorize(frame["education"], sort=True)[0]
        frame["age_code"] = 1 + pd.factorize(frame["age"], sort=True)[0]
        keys = ["age", "sex", "race", "education", "marital_status"]
        return frame, keys, {"education_code": "education", "age_code": "age"}
    frame = pd.read_csv(folder / f"{name}.csv.gz", dtype=str, keep_default_na=False)
    if name == "simulated_residents":
        frame["years"] = frame["age"].astype(int)
        frame["age"] = _bands(frame["years"], [15, 25, 35, 45, 55, 65, 75])
        frame["activity"] = frame["ecoStat"].map(lambda text: f"activity {text}")
        keys = ["age", "gender", "region", "citizenship", "activity"]
        return frame, keys, {"years": "age", "ecoStat": "activity"}
    frame["schooling"] = _bands(frame["education"].astype(int), [8, 12, 13, 16])
    frame["years"] = _bands(frame["experience"].astype(int), [5, 10, 20, 30, 40])
    keys = ["schooling", "years", "ethnicity", "smsa", "region"]
    return frame, keys, {"education": "schooling", "experience": "years"}


def _bands(numbers, starts):
    """Labels of bands of numbers."""
    labels = [
        f"under {starts[0]}",
        *(f"{a}-{b - 1}" for a, b in zip(starts, starts[1:], strict=False)),
    ]
    return np.array([*labels, f"{starts[-1]}+"], object)[np.digitize(numbers, starts)]


def sure_guesses(frame, mask, keys):
    """Suppressed values that a forest, grown on the released file, is sure of: right and wrong."""
    coded = frame.apply(lambda x: pd.to_numeric(x, errors="coerce") if _numeric(x)
                        else pd.Series(pd.factorize(x)[0], x.index)).fillna(-1)  # fmt: skip
    right = wrong = 0
    for j, name in enumerate(keys):
        gone = mask[:, j]
        known = ~gone & frame[name].notna().to_numpy()
        if not gone.any() or frame[name][known].nunique() < 2:
            continue
        others = coded.drop(columns=name).to_numpy()
        forest = RandomForestClassifier(60, random_state=0).fit(others[known], frame[name][known])
        chance = forest.predict_proba(others[gone])
        guess = forest.classes_[chance.argmax(axis=1)]
        sure = chance.max(axis=1) >= SURE
        hits = guess == TRUE[name][gone]
        right, wrong = right + (sure & hits).sum(), wrong + (sure & ~hits).sum()
    return int(right), int(wrong)


TRUE: dict = {}


def _numeric(values):
    return pd.to_numeric(values.dropna(), errors="coerce").notna().all()


def uniques(sample, people, mask):
    """Records of the released file that one person of the population has, by all its columns."""
    both = pd.concat([sample, people], ignore_index=True).astype(str)
    codes = np.stack([pd.factorize(both[name])[0] for name in both], axis=1)
    sizes = [int(of.max()) + 1 for of in codes.T]
    counts = np.repeat([0, 1], [len(sample), len(people)])
    number = 0
    for pattern, where in patterns(mask):
        number += (Rows(codes, counts, sizes).alike(np.flatnonzero(~pattern))[where] == 1).sum()
    return int(number)


def anonymous(table, k, share):
    """The recoding and the suppressed values by which `bnp.protect` makes a file k-anonymous."""
    recoded, weight = Recoded.unchanged(table), np.ones(table.num_variables)
    in_order = ordered_variables(table.schema)
    wanted = Targets([Anonymity(k)], None, Units.of(table))
    while True:
        few, mask = wanted.suppress(recoded, weight, int(share * table.n))
        step = None if few else _next_towards(recoded, wanted, weight, in_order)
        if step is None:
            return recoded, mask
        recoded = step[0]


def measure(case, folder):
    """Rows of one sample."""
    population, keys, beside = people_of(case["population"], folder)
    rows = np.random.default_rng(case["seed"]).choice(len(population), N, replace=False)
    sample = population.iloc[rows].reset_index(drop=True)
    sample["weight"] = np.random.default_rng(case["seed"]).gamma(20, 3, N).round(3).astype(str)
    levels = bnp.Microdata.from_frame(population[keys]).schema
    table = bnp.Microdata.from_frame(sample, keys, levels=levels)
    recoded, mask = anonymous(table, *TARGETS[case["seed"] % 2])
    coarsening = recoded.coarsening
    kept = list(coarsening.schema.variables)
    labels = bnp.Microdata(coarsening.schema, np.where(mask, -1, recoded.records.codes)).to_frame()
    verdict = Verdict(True, "", Limits(), None)
    of_all = bnp.Microdata.from_frame(population, keys, levels=levels)
    people = coarsening.coarser(of_all).to_frame().astype(str).reset_index(drop=True)
    original = coarsening.coarser(table).to_frame().astype(str)
    TRUE.update({name: original[name].to_numpy() for name in kept})
    ways = {
        "all columns": ([*beside, "weight"], {}),
        "key variables": ([], {}),
        "linked": ([], beside),
    }
    for way, options in ways.items():
        released = release(table, recoded, mask, labels, sample, *options)
        frame, whole, old = released.frame, people.copy(), original.copy()
        gone = pd.DataFrame(mask, columns=kept)
        for name, key in beside.items():
            if name not in frame:
                continue
            if way == "linked":
                # As in the file: values of merged levels are one.
                merged = old[key] != sample[key]
                old[name] = sample[name].astype(str).mask(merged, old[key])
                other = whole[key] != population[key].reset_index(drop=True)
                whole[name] = population[name].reset_index(drop=True).astype(str)
                whole[name] = whole[name].mask(other, whole[key])
                gone[name] = gone[key] if key in gone else True
            else:
                old[name] = sample[name].astype(str)
                whole[name] = population[name].reset_index(drop=True).astype(str)
                gone[name] = False
        right, wrong = sure_guesses(frame, mask, kept)
        yield case | {
            "way": way, "suppressed": released.suppressed,
            "told": released.suppressed_told, "told_by_keys": released.suppressed_told_by_keys,
            "merged_told": released.merged_told, "forest_right": right, "forest_wrong": wrong,
            "population_uniques": uniques(old[list(gone)], whole[list(gone)], gone.to_numpy()),
            "verdict": released.judge(verdict).word,
        }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("populations", type=Path)
    args = parser.parse_args()
    cases = [
        {"population": name, "seed": seed}
        for seed in range(7)
        for name in ("census", "simulated_residents", "workers")
    ][:20]
    results = Results(HERE / "released.csv", ("population", "seed"))
    for case in results.missing(cases):
        for one in list(measure(case, args.populations)):
            results.append(one)
    rows = pd.read_csv(HERE / "released.csv")
    table = rows.groupby("way", sort=False)[
        ["suppressed", "told", "told_by_keys", "merged_told", "forest_right", "forest_wrong",
         "population_uniques"]
    ].sum()  # fmt: skip
    table = table.join(pd.crosstab(rows["way"], rows["verdict"]))
    (HERE / "released.md").write_text(markdown(table) + "\n")


if __name__ == "__main__":
    main()
