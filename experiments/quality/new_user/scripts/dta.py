"""Item 16: names and labels of a Stata file: `python dta.py FILE`."""

import sys

import pandas as pd

with pd.read_stata(sys.argv[1], iterator=True) as file:
    print(file.variable_labels())
