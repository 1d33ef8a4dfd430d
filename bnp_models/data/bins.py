"""Bins of numeric columns: the levels that models use, and values drawn within the bins."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pandas as pd

from bnp_models.data.bin_values import FEW, BinValues
from bnp_models.data.display import Shown, counted, displayed
from bnp_models.data.label_numbers import plain_number, read_numbers, written
from bnp_models.data.messages import quoted
from bnp_models.data.microdata import Records, as_records
from bnp_models.data.recoding import Merged, Recoding, digits
from bnp_models.data.respelling import require_readable
from bnp_models.data.schema import Label, MicrodataError, plain_label, text_of, unknown_variable


@dataclass(frozen=True, eq=False)
@displayed
class Bins(Merged):
    """Bins of one numeric column, each of a run of adjacent values.

    A value is a bin of its own if it has as many records as a bin should have. So is every label
    that is not a number, such as a code for "not applicable". The labels that are not numbers come
    first, except one like "85+", which comes last. A value between two bins belongs to the lower
    one, and a value below all bins to the lowest one.

    Examples
    --------
    >>> binned, bins = bnp.bin_columns(pd.DataFrame({"income": range(100)}), {"income": 4})
    >>> bins["income"].labels
    ('4 to 24', '25 to 49', '50 to 74', '75 to 95')
    """

    _REFUSED: ClassVar[str] = "is neither a number nor a label of the original"

    low: np.ndarray
    """(B,) lowest values that are drawn; NaN where the label is no number."""
    high: np.ndarray
    """(B,) highest values that are drawn."""
    unit: np.ndarray
    """(B,) step between the values that are drawn, such as 100 if all incomes are multiples of
    100."""
    decimals: int | None
    """Number of decimals of values that are text; None if the values are numbers."""
    within: tuple[BinValues | None, ...]
    """What is drawn in each bin; None where the label is drawn itself."""

    @classmethod
    def choose(
        cls,
        variable: str,
        values: Sequence[Label],
        counts: np.ndarray,
        number: int,
        holders: np.ndarray | None = None,
    ) -> "Bins":
        """Choose about `number` bins that hold about as many records each.

        Parameters
        ----------
        variable
            Name of the column.
        values
            (V,) distinct values. These are not put into bins: an `OwnLevel`, a label without
            digits, and a range above or below all numbers, such as "85+".
        counts
            (V,) number of records with each value.
        number
            Approximate number of bins for the numbers.
        holders
            (V,) number of households with each value, if the records are persons of households. By
            default `counts`.

        Raises
        ------
        MicrodataError
            If fewer than two of the values are numbers, or a value with digits cannot be read as
            one.

        Notes
        -----
        The ends of bins are round numbers between the values on either side. The outermost ends are
        the 5th smallest and the 5th largest value, or lie further inside; values beyond them are
        replaced by values that are drawn between the ends.
        """
        require_readable(values, counts, variable, "putting them into bins")
        numbers = [plain_number(value) for value in values]
        pairs = sorted((x, i) for i, x in enumerate(numbers) if x is not None)
        x, order = [x for x, _ in pairs], [i for _, i in pairs]
        if len(order) < 2:
            single = [
                value for value, one in zip(values, read_numbers(values), strict=True)
                if one is not None and one.low == one.high and plain_number(value) is None
            ]  # fmt: skip
            if len(single) > 1:
                raise MicrodataError(
                    f"has numbers with a unit or a sign, such as {quoted(text_of(single[0]))}, and "
                    "bins need numbers alone; remove what stands beside them",
                    column=variable,
                )
            raise MicrodataError(
                "has fewer than two numbers, so that there is nothing to put into bins",
                column=variable,
            )
        others, above = _beside(variable, values, numbers)
        count = np.asarray(counts)[order]
        held = count if holders is None else np.asarray(holders)[order]
        total, labels, ends, drawn = np.cumsum(held), [], [], []
        for first, last in _runs(x, count, count.sum() / number):
            low, high, unit = _ends(x, total, first, last)
            ends.append((low, high, unit))
            inside = slice(first, last + 1)
            drawn.append(BinValues.of(ends[-1], x[inside], count[inside], held[inside]))
            if low == high and low in x:
                labels.append(values[order[x.index(low)]])
            else:
                labels.append(" to ".join(map(written, (low, high))))
        nothing = (math.nan,) * 3
        padded = [*[nothing] * len(others), *ends, *[nothing] * len(above)]
        lows, highs, units = np.array(padded, float).T
        decimals = None
        if any(isinstance(values[i], str) for i in order):
            decimals = max(len(text_of(values[i]).partition(".")[2]) for i in order)
        within_bins = (*[None] * len(others), *drawn, *[None] * len(above))
        labels = [*others, *labels, *above]
        cuts = list(map(digits, lows[len(others) :][: len(ends)]))
        between = [f"{low} to <{high}" for low, high in zip(cuts, cuts[1:], strict=False)]
        ranges = [f"<{cuts[0]}", *between, f">={cuts[-1]}"]
        codes = {text_of(label): b for b, label in enumerate(labels)}
        code = [len(others), *range(len(others), len(others) + len(ends))]
        within = dict(zip(ranges, code, strict=True))
        return cls(
            variable, tuple(labels), codes, within, lows, highs, units, decimals, within_bins
        )  # fmt: skip

    def draw(self, rng: np.random.Generator, codes: np.ndarray) -> pd.Series:
        """Draw a value of each bin.

        A value that at least five records share is drawn as often as they have it. Of other records
        only the roundness of their values is imitated, such as multiples of 50: values that are
        equally round, at least five, are drawn with the same probability, whether a record has them
        or not.

        Parameters
        ----------
        rng
            Generator.
        codes
            (m,) codes of bins, -1 where missing.
        """
        b = np.asarray(codes)
        steps = np.zeros(len(b), np.int64)
        for code, within in enumerate(self.within):
            if within is not None:
                here = np.flatnonzero(b == code)
                steps[here] = within.draw(rng, len(here))
        value = self.low[b] + steps * self.unit[b]
        made = np.empty(len(b), object)
        for i, (k, x) in enumerate(zip(b, value, strict=True)):
            if k < 0:
                made[i] = None
            elif np.isnan(x) or self.low[k] == self.high[k]:
                made[i] = self.labels[k]
            elif self.decimals is None:
                made[i] = plain_label(float(f"{x:.12g}"))
            else:
                made[i] = f"{x:.{self.decimals}f}"
        return pd.Series(made).infer_objects()

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        lines = {"labels": ", ".join(map(str, self.labels))}
        return Shown(f"Bins: {counted(len(self.labels), 'bin')} of {self.variable}", lines)


def bin_columns(
    table: Records | pd.DataFrame,
    numbers: Mapping[str, int],
    of_household: np.ndarray | None = None,
) -> tuple[Records, dict[str, Bins]]:
    """Put the values of numeric columns into bins.

    Parameters
    ----------
    table
        Records with the values as levels, or a data frame.
    numbers
        By variable, the approximate number of bins.
    of_household
        (n,) household of each person, if the records are persons of households. A value that the
        persons of one household share is then not taken for a value of several records.

    Returns
    -------
    table, bins
        The records with bins as levels, and the bins by variable.

    Raises
    ------
    MicrodataError
        If a variable is unknown, or its values are no numbers.

    Examples
    --------
    >>> binned, bins = bnp.bin_columns(pd.DataFrame({"income": range(100)}), {"income": 4})
    >>> binned.schema.num_levels
    (4,)
    """
    table = as_records(table, "bin_columns(table, {variable: number})")
    bins = {}
    for variable, number in numbers.items():
        if variable not in table.schema.variables:
            raise unknown_variable(variable, table.schema.variables, "variable")
        levels = table.schema.levels[table.schema.variables.index(variable)]
        counts, holders = level_counts(table, variable), None
        if of_household is not None:
            codes = table.codes[:, table.schema.variables.index(variable)]
            pairs = np.unique(np.stack([of_household, codes])[:, codes >= 0], axis=1)
            holders = np.bincount(pairs[1], minlength=len(levels))
        bins[variable] = Bins.choose(variable, levels, counts, number, holders)
    return in_bins(table, bins), bins


def level_counts(table: Records, variable: str) -> np.ndarray:
    """Records with each level of a variable, (L,) int64 array."""
    j = table.schema.variables.index(variable)
    cells = table.tabulated
    codes = cells.codes[:, j]
    counts = np.zeros(len(table.schema.levels[j]), np.int64)
    np.add.at(counts, codes[codes >= 0], cells.counts[codes >= 0])
    return counts


def in_bins(table: Records | pd.DataFrame, bins: Mapping[str, Merged]) -> Records:
    """Put the values of columns into given bins, such as those of another table.

    Parameters
    ----------
    table
        Coded records, a table of counts, or a data frame.
    bins
        Bins by the name of the variable, as `bin_columns` returns them.

    Raises
    ------
    MicrodataError
        If a value belongs to none of the bins.

    Examples
    --------
    >>> incomes = pd.DataFrame({"income": range(100)})
    >>> binned, bins = bnp.bin_columns(incomes, {"income": 4})
    >>> bnp.data.in_bins(incomes, bins).digest == binned.digest
    True
    """
    table = as_records(table, "in_bins(table, bins)")
    return Recoding.of(table.schema, bins).coarser(table) if bins else table


def draw_in_bins(
    rng: np.random.Generator,
    frame: pd.DataFrame,
    bins: Mapping[str, Bins],
    household: str | None = None,
    household_variables: Sequence[str] = (),
) -> pd.DataFrame:
    """Replace the labels of bins by values drawn from them.

    Parameters
    ----------
    rng
        Generator.
    frame
        Records whose columns of these names have labels of bins, or are missing.
    bins
        As from `bin_columns`.
    household, household_variables
        Column that identifies the households, and variables of which all persons of a household get
        the same value.

    Examples
    --------
    >>> binned, bins = bnp.bin_columns(pd.DataFrame({"income": range(100)}), {"income": 4})
    >>> drawn = bnp.data.draw_in_bins(np.random.default_rng(0), binned.to_frame(), bins)
    >>> drawn["income"].between(0, 99).all().item()
    True
    """
    columns = {}
    for variable, of_variable in bins.items():
        shared = variable in household_variables
        drawn_for = frame.drop_duplicates(household) if shared else frame
        raw, values = pd.factorize(drawn_for[variable])
        codes = np.append(of_variable.code(values), -1)[raw]
        drawn = of_variable.draw(rng, codes)
        if shared:
            columns[variable] = frame[household].map(drawn.set_axis(drawn_for[household]))
        else:
            columns[variable] = drawn.set_axis(frame.index)
    return frame.assign(**columns)


def _beside(
    variable: str, values: Sequence[Label], numbers: Sequence[Fraction | None]
) -> tuple[list[Label], list[Label]]:
    """Labels that are not put into bins: those before the bins, and those above all numbers."""
    known = [float(x) for x in numbers if x is not None]
    before: list[Label] = []
    above: list[Label] = []
    for value, x, interval in zip(values, numbers, read_numbers(values), strict=True):
        if x is not None:
            continue
        if interval is not None and interval.low == interval.high:
            raise MicrodataError(
                f"level {quoted(value)} is a number with a unit or a sign; write the number alone",
                column=variable,
            )
        if interval is not None and interval.low > max(known):
            above.append(value)
        elif interval is None or interval.high < min(known):
            before.append(value)
        else:
            raise MicrodataError(
                f"level {quoted(value)} is not a single number, and may stand for numbers that are "
                "put into bins; correct it, or merge levels in another way (--recode-by)",
                column=variable,
            )
    return before, above


def _runs(x, count, size) -> list[tuple[int, int]]:
    """First and last index of each bin's values, ascending, `size` records in each, about."""
    runs: list[tuple[int, int]] = []
    held = 0
    for i in range(len(x)):
        begins = not runs or count[i] >= size or count[runs[-1][1]] >= size
        if begins or held + count[i] / 2 >= size:
            runs.append((i, i))
            held = 0
        runs[-1] = runs[-1][0], i
        held += count[i]
    return _joined(runs, count, size)


def _joined(runs, count, size) -> list[tuple[int, int]]:
    """Join bins of a few records, which would tell their values, to one beside them."""

    def held(run):
        return count[run[0] : run[1] + 1].sum()

    def is_point(run):
        return run[0] == run[1] and count[run[0]] >= size

    i = 0
    while len(runs) > 1 and i < len(runs):
        if held(runs[i]) >= FEW:
            i += 1
            continue
        # Values with a bin of their own keep it where there is another neighbour.
        after = i + 1 < len(runs) and (i == 0 or not is_point(runs[i + 1]))
        first = i if after else i - 1
        runs[first : first + 2] = [(runs[first][0], runs[first + 1][1])]
        i = first
    return runs


def _ends(x, total, first, last) -> tuple[Fraction, Fraction, Fraction]:
    """Lowest and highest value to be drawn in a bin, and the distance of those between."""
    if first == last:
        return x[first], x[first], Fraction(1)
    unit = Fraction(10) ** 12
    while any(value % unit for value in x[first : last + 1]):
        unit /= 10
    # As many as can be counted, and told apart.
    while x[last] - x[first] > unit * 10**15:
        unit *= 10
    if first == 0:
        low = x[min(int(np.searchsorted(total, FEW)), last)]
    else:
        low = _between(x[first - 1], x[first])
    if last == len(x) - 1:
        high = x[max(int(np.searchsorted(total, total[-1] - FEW, side="right")), first)]
    else:
        # The largest multiple below the next bin.
        high = (math.ceil(_between(x[last], x[last + 1]) / unit) - 1) * unit
    low = math.ceil(low / unit) * unit
    return min(low, high), max(low, high), unit


def _between(below: Fraction, above: Fraction) -> Fraction:
    """Number of few digits above one number and not above another."""
    unit = Fraction(10) ** 12
    while True:
        cut = math.floor(above / unit) * unit
        if below < cut:
            return cut
        unit /= 10
