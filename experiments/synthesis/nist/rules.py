"""The benchmark's rules: as structural zeros, and as a count of records that break them."""

from itertools import product

import numpy as np
import pandas as pd


def _age(test):
    return lambda label: test(int(label))


def _number(test):
    return lambda label: label != "N" and test(int(label))


def _is(*labels):
    return lambda label: label in labels


def _given(label):
    return label != "N"


# Each is a combination that cannot occur, by what is true of the label of each variable.
RULES = [
    *({"AGEP": _age(lambda a: a < 15), name: _given}
      for name in ("DVET", "MSP", "PINCP", "PINCP_DECILE", "INDP", "INDP_CAT")),
    {"AGEP": _age(lambda a: a < 15), "EDU": _number(lambda e: e >= 12)},
    {"AGEP": _age(lambda a: a < 5), "EDU": _number(lambda e: e >= 5)},
    {"AGEP": _age(lambda a: a < 3), "EDU": _given},
    *({"AGEP": _age(lambda a: a < 5), name: _given} for name in ("DPHY", "DREM")),
    *({"AGEP": _age(lambda a: a > 15), name: _is("N")}
      for name in ("MSP", "PINCP", "PINCP_DECILE", "EDU", "DPHY", "DREM")),
    *({"HOUSING_TYPE": _is("2", "3"), name: _given} for name in ("NOC", "NPF")),
    {"HOUSING_TYPE": _is("2", "3"), "OWN_RENT": _is("1", "2")},
    {"HOUSING_TYPE": _is("1"), "OWN_RENT": _is("0")},
    {"HOUSING_TYPE": _is("1"), "NOC": _is("N")},
    {"PINCP": _is("N"), "PINCP_DECILE": _given},
    {"PINCP": _given, "PINCP_DECILE": _is("N")},
]  # fmt: skip


def conditions(levels, above=()):
    """Structural zeros as a frame, of variables with these levels (a dict).

    `above` holds the labels of PINCP's bins that are beyond the bound of the top code.
    """
    rows = []
    for rule in RULES:
        if set(rule) <= set(levels):
            chosen = ([x for x in levels[name] if test(x)] for name, test in rule.items())
            rows += [dict(zip(rule, combination, strict=True)) for combination in product(*chosen)]
    if {"NOC", "NPF"} <= set(levels):
        counts = [[x for x in levels[name] if x != "N"] for name in ("NOC", "NPF")]
        rows += [{"NOC": a, "NPF": b} for a, b in product(*counts) if int(a) >= int(b)]
    if {"PINCP", "POVPIP"} <= set(levels):
        below = [x for x in levels["POVPIP"] if x not in ("N", "501")]
        rows += [{"PINCP": a, "POVPIP": b} for a, b in product(above, below)]
    return pd.DataFrame(rows, columns=list(levels))


def top_code_bound(frame):
    """Income above which every record has the top code of POVPIP, or none."""
    income, ratio = (pd.to_numeric(frame[name], errors="coerce") for name in ("PINCP", "POVPIP"))
    return float(income[ratio < 501].max())


def violations(frame, bound=None):
    """Records that break a rule, summed over rules; `bound` is that of `top_code_bound`."""
    age = frame["AGEP"].astype(int)
    given = {name: frame[name] != "N" for name in frame.columns}
    number = {
        name: pd.to_numeric(frame[name], errors="coerce")
        for name in ("EDU", "NOC", "NPF", "PINCP", "POVPIP")
        if name in frame
    }
    broken = [
        (age < 15) & given[name]
        for name in ("DVET", "MSP", "PINCP", "PINCP_DECILE", "INDP", "INDP_CAT")
        if name in frame
    ]
    if "EDU" in frame:
        education = number["EDU"]
        broken += [
            (age < 15) & (education >= 12), (age < 5) & (education >= 5), (age < 3) & given["EDU"]
        ]  # fmt: skip
    broken += [(age < 5) & given[name] for name in ("DPHY", "DREM") if name in frame]
    broken += [
        (age > 15) & ~given[name]
        for name in ("MSP", "PINCP", "PINCP_DECILE", "EDU", "DPHY", "DREM")
        if name in frame
    ]
    if "INDP" in frame and "INDP_CAT" in frame:
        broken.append(given["INDP"] != given["INDP_CAT"])
    quarters = frame["HOUSING_TYPE"].isin(["2", "3"])
    broken += [
        quarters & frame["OWN_RENT"].isin(["1", "2"]),
        ~quarters & (frame["OWN_RENT"] == "0"),
    ]
    if "NOC" in frame:
        broken += [number["NOC"] >= number["NPF"], quarters & given["NOC"], quarters & given["NPF"]]
        broken.append(~quarters & ~given["NOC"])
    if "PINCP" in frame and bound is not None:
        broken.append((number["PINCP"] > bound) & (number["POVPIP"] < 501))
    return int(np.sum(broken))
