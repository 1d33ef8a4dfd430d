"""Conditionals in single precision against double precision, same inputs and same keys.

    python experiments/quality/numbers/precision.py
    python experiments/quality/numbers/precision.py --only tilt

A row for each conditional of `conditionals.py`, at a thousand records, at the most for which
moves of mixed membership are decided in single precision, and at a million. The errors:

nats      of log weights and of log ratios by which moves are decided: the largest, absolute
drawn     of parameters: the largest relative error of a draw under 64 keys. Draws by rejection that
          took another trial in the other precision, or whose move was decided otherwise, differ by
          more than 1%: the share of these is given after it
share     of labels and counts: the share that differ
relative, absolute
          the largest of such errors

Rows that are not evaluated are kept as they are in ``precision.md`` beside this file.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
from conditionals import CASES, SIZES

from bnp_models.kernels.numerics.platforms import double_precision

TABLE = Path(__file__).parent / "precision.md"
HEAD = ["| model | conditional | error |", "|---|---|---|"]
HEAD[0] += "".join(f" n = {n:,} |" for n in SIZES)
HEAD[1] += "---|" * len(SIZES)


def evaluate(function, args, double):
    """A function of arrays in one precision; floats are what float32 makes of them."""

    def given(x):
        x = np.asarray(x)
        kinds = {"f": np.float32, "i": np.int32}
        return x.astype(kinds.get(x.dtype.kind, x.dtype))

    def wide(x):
        return x.astype(np.float64) if x.dtype == np.float32 else x

    args = jax.tree.map(given, args)
    if not getattr(function, "on_host", False):
        function = jax.jit(function)
    if not double:
        return np.asarray(function(*args))
    with double_precision():
        return np.asarray(function(*jax.tree.map(wide, args)))


def error(measure, single, double):
    """The largest error of a conditional."""
    if measure == "share":
        return f"{np.mean(single != double):.1e}"
    if (np.isfinite(double) != np.isfinite(single)).any():
        return "not finite in one"
    finite = np.isfinite(double)
    off = np.abs(single.astype(np.float64) - double)[finite]
    if measure == "relative":
        return f"{(off / np.abs(double[finite])).max():.1e}"
    if measure != "drawn":
        return f"{off.max():.1e}"
    # Logarithms are drawn.
    apart = np.expm1(off) > 0.01
    largest = f"{np.expm1(off[~apart]).max():.1e}" if not apart.all() else "-"
    return f"{largest}, {apart.mean():.1%}" if apart.any() else largest


def row_of(case):
    """Cells of a case: evaluate it."""
    errors = {}
    for n in case.sizes:
        function, args = case.make(n)
        both = [evaluate(function, args, double) for double in (False, True)]
        errors[n] = error(case.measure, *both)
    cells = case.model, case.conditional, case.measure, *(errors.get(n, "") for n in SIZES)
    return "| " + " | ".join(cells) + " |"


def written():
    """Rows of the table as it is, by model and conditional."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    if lines[:2] != HEAD:
        return {}
    return {tuple(line.split(" | ")[:2]): line for line in lines[2:]}


def main():
    """Evaluate, write the table after each row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="part of the model and conditional")
    only = parser.parse_args().only
    rows = written()
    names = {(f"| {case.model}", case.conditional): case for case in CASES}
    for name, case in names.items():
        if only in f"{case.model}: {case.conditional}":
            start = time.monotonic()
            rows[name] = row_of(case)
            print(f"{time.monotonic() - start:5.1f} s {rows[name]}", flush=True)
            table = HEAD + [rows[name] for name in names if name in rows]
            TABLE.write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
