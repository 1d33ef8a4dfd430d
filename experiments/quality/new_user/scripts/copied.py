"""Item 2: share of synthetic values that one real person has: `python copied.py COLUMN.. [DIR]`."""

import sys
from pathlib import Path

import pandas as pd

folder = sys.argv.pop() if Path(sys.argv[-1]).is_dir() else "copied"
real, made = pd.read_csv("people.csv"), pd.read_csv(f"{folder}/synthetic_1.csv")
for column in sys.argv[1:]:
    alone = set(real[column].drop_duplicates(keep=False))
    print(
        f"{column}: {made[column].isin(alone).mean():.0%} of the synthetic values are of one person"
    )
