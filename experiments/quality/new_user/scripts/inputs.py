"""Files as people have them: `python inputs.py DIR` writes all that the other commands read."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import bnp_models as bnp

out = Path(sys.argv[1])
rng = np.random.default_rng(0)
sample = bnp.datasets.census_income(adults=True).sample(300, seed=0).astype(str)
sample = sample[["age", "sex", "race", "marital_status", "education", "class_of_worker"]]
sample.to_csv(out / "sample.csv", index=False)

people = sample.copy()
people.insert(0, "person_number", 190_000_000 + rng.permutation(10**6)[: len(people)])
people["salary"] = rng.lognormal(10.3, 0.6, len(people)).astype(int)
people.to_csv(out / "people.csv", index=False)

german = sample.assign(sex=sample["sex"].replace({"Male": "männlich", "Female": "weiblich"}))
priced = people[["age"]].assign(
    salary=pd.cut(people["salary"], [0, 9_000, 30_000, 100_000, 10**9]).cat.rename_categories(
        ["$9,000", "$30,000", "$100,000", "more"]
    ),
)
priced.to_csv(out / "plain.csv", index=False)
german.to_csv(out / "semicolon_cp1252.csv", sep=";", index=False, encoding="cp1252")
german.to_csv(out / "tab_utf16.txt", sep="\t", index=False, encoding="utf-16")
german.to_excel(out / "sheet.xlsx", index=False)
(out / "packed.csv.gz").write_bytes(gzip.compress(german.to_csv(index=False).encode()))

codes = sample.replace({"race": {"American Indian or other": "-9"},
                        "education": {"Bachelor or higher": "some college"}})  # fmt: skip
codes.to_csv(out / "codes.csv", index=False)

formulas = sample.copy()
formulas["sex"] = formulas["sex"].replace({"Male": "=1+1", "Female": "@SUM(A1)"})
formulas.insert(0, "id", [f"P{i:03d}" for i in range(len(formulas))])
formulas.to_csv(out / "formulas.csv", index=False)

long = sample.rename(
    columns={"age": "age in completed years at the day of the survey", "sex": "sex (self-reported)"}
)
long.to_csv(out / "long_names.csv", index=False)

years = sample[["sex", "marital_status", "class_of_worker"]].copy()
years.insert(0, "age", rng.integers(15, 90, len(years)))
years["marital_status"] = years["marital_status"].mask(years["age"] < 20, "Never married")
years.loc[years.index[:4], "age"] = 17
years.loc[years.index[:3], "marital_status"] = "Widowed"
years.to_csv(out / "years.csv", index=False)

(out / "header_only.csv").write_text("age,sex\n")
sample.iloc[:0].to_csv(out / "no_records.csv", index=False)
(out / "zeros.csv").write_text(
    "age,marital_status\n<20,Widowed|Separated or divorced\n18-19,!Never married\n"
)
(out / "zeros_of_bands.csv").write_text("age,marital_status\n<45,Widowed\n")
(out / "header_only_zeros.csv").write_text("age,marital_status\n")

(out / "roles.csv").write_text(
    "role,label\nrelationship variable,stellung\nage variable,alter\nsex variable,geschlecht\n"
    "head,Haushaltsvorstand\nspouse,Ehegatte\nchild,Kind\n"
)
(out / "rules.yaml").write_text("""\
persons:
  head: {stellung: Haushaltsvorstand}
  child: {stellung: Kind}

rules:
  - name: one head
    exactly: 1
    of: head
  - name: age of children
    each: child
    younger than: head
    by at least: 15
    variable: alter
""")
households = []
for number in range(80):
    head = int(rng.integers(25, 70))
    sex, other = rng.permutation(["m", "w"])
    households.append((number, "Haushaltsvorstand", head, sex))
    if number % 2:
        households.append((number, "Ehegatte", head - 1, other))
    if number % 4 == 3:
        households.append((number, "Kind", max(0, head - 25), rng.choice(["m", "w"])))
frame = pd.DataFrame(households, columns=["hid", "stellung", "alter", "geschlecht"])
frame["alter"] = frame["alter"] // 10 * 10
frame["alter"] = [f"{a}-{a + 9}" for a in frame["alter"]]
frame.to_csv(out / "haushalte.csv", index=False)
