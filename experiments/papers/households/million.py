"""A million synthetic households, and not one that breaks a rule.

    python experiments/papers/households/million.py            # writes million.md

The meaning of `census-relationships` is written again here, on data frames; shared with the package
are only the labels.
"""

import dataclasses
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.cli.inputs import prior_possible_of
from bnp_models.models import relative_to_heads
from bnp_models.rules.census import census_relationships

HERE = Path(__file__).parent
HOUSEHOLDS = 1_000_000
COPIES = 40
YEARS_YOUNGER = {"Natural born child": 7, "Biological child": 7, "Adopted child": 11,
                 "Stepchild": 9, "Grandchild": 26}  # fmt: skip
PRINTED = bnp.NDPMPM(20, 10, member_classes="nested")


def by_command(table):
    """The default of `bnp-models synthesize` for these households."""
    return bnp.NDPMPM(relative=relative_to_heads(table), prior_possible=prior_possible_of(table.n))


MODELS = {
    "Bay Area, as printed, head among the members": (
        bnp.datasets.bay_area_households,
        False,
        lambda table: PRINTED,
    ),
    "Southeast Michigan, default of the command": (
        bnp.datasets.southeast_michigan_households,
        True,
        by_command,
    ),
    "Bay Area, default of the command": (bnp.datasets.bay_area_households, True, by_command),
}


def broken(frame: pd.DataFrame) -> int:
    """Households that break a rule."""
    relate, home = frame["relate"].astype(str), frame["household"]
    number = home.nunique()
    bad = set()

    def also(households):
        bad.update(households.unique())

    heads = frame[relate == "Householder"].groupby("household")
    one = heads.size()
    bad.update(one.index[one != 1])
    bad.update(set(home.unique()) - set(one.index))
    of_head = heads[["age", "sex"]].first()
    head_age, head_sex = home.map(of_head["age"]), home.map(of_head["sex"].astype(str))
    also(home[head_age < 15])
    spouse = relate == "Husband/wife"
    count = home[spouse].value_counts()
    bad.update(count.index[count > 1])
    also(home[spouse & (frame["age"] < 15)])
    also(home[spouse & (frame["sex"].astype(str) == head_sex)])
    also(home[spouse & ((frame["age"] - head_age).abs() > 49)])
    for label, years in YEARS_YOUNGER.items():
        also(home[(relate == label) & (head_age - frame["age"] < years)])
    parent = relate.isin(["Father/mother", "Parent-in-law"])
    also(home[parent & (frame["age"] - head_age < 4)])
    also(home[(relate == "Brother/sister") & ((frame["age"] - head_age).abs() > 37)])
    grandchild = relate == "Grandchild"
    also(home[grandchild & (head_age < 30)])
    young = home[spouse & (frame["age"] < 16)]
    also(home[grandchild & home.isin(young)])
    assert number >= len(bad)
    return len(bad)


def main() -> None:
    lines = ["| households of | synthetic | persons | seconds | break a rule | break a rule in a "
             "run without rules |", "|---|---|---|---|---|---|"]  # fmt: skip
    for name, (data, head, model_of) in MODELS.items():
        table = data(distinct=True).households(head=head)
        rules = census_relationships(table)
        table = table.select(rules.check(table))
        big = table.select(np.tile(np.arange(table.n), COPIES))

        given = model_of(table)

        def files(conditions, number, table=table, big=big, given=given):
            possible = 0 if conditions is None else given.prior_possible
            model = dataclasses.replace(given, prior_possible=possible)
            run = bnp.sample(
                model, table, key=jax.random.key(0), conditions=conditions, num_chains=2,
                num_warmup=200, num_samples=200,
            )  # fmt: skip
            run = dataclasses.replace(run, table=big)
            number = -(-number // big.n)
            for i in range(number):
                yield from bnp.synthesize(run, 1, key=jax.random.key(i))

        began = time.perf_counter()
        made = persons = wrong = 0
        for frame in files(rules, HOUSEHOLDS):
            made, persons = made + frame["household"].nunique(), persons + len(frame)
            wrong += broken(frame)
        seconds = time.perf_counter() - began
        without = next(iter(files(None, 1)))
        share = broken(without) / without["household"].nunique()
        lines.append(f"| {name} | {made:,} | {persons:,} | {seconds:.0f} | {wrong} | {share:.1%} |")
        print(lines[-1], flush=True)
    text = (
        "Made by `python experiments/papers/households/million.py`; "
        "seconds include compilation.\n\n"
    )
    (HERE / "million.md").write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
