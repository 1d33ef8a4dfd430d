"""Identity and attribute disclosure of synthetic files to an intruder who knows key variables.

The measures are those of Raab, G. M. (2024), Practical privacy metrics for synthetic data,
doi:10.48550/arXiv.2406.16826, as shares of the original's records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnp_models.data.contingency import common_cells, count_in_cells
from bnp_models.data.documents import Share
from bnp_models.data.frames import Tabular
from bnp_models.data.schema import unknown_variable
from bnp_models.evaluation.files import coded_files


class TargetDisclosure(NamedTuple):
    """Attribute disclosure of one target: means over files, except for that of the original."""

    target: str
    """Name of the target variable."""
    in_original: Share
    """Share of the original's records whose key values all have one target value in the original
    (Dorig). This is what the original itself would disclose."""
    in_synthetic: Share
    """Share of the synthetic records whose key values all have one target value there (Dsyn)."""
    disco: Share
    """Share of the original's records whose key values all have one target value in the synthetic
    file, and it is the correct one (DiSCO: disclosive in synthetic, correct in original)."""
    disclosive_in_both: Share
    """Share of the original's records for which this is also true in the original (DiSDiO)."""


class Disclosure(NamedTuple):
    """Disclosure by one set of keys.

    Examples
    --------
    >>> found = bnp.evaluation.disclosure(table, files, keys=["age", "sex"])
    >>> [target.target for target in found.targets]
    ['education']
    """

    keys: tuple[str, ...]
    """Names of the key variables."""
    unique_in_original: Share
    """Share of the original records that are unique on the key variables (UiO)."""
    unique_in_synthetic: Share
    """Share of the synthetic records that are unique on the key variables in their file (UiS)."""
    replicated_uniques: Share
    """Share of the original records that are unique on the key variables and whose key values occur
    exactly once in the synthetic file (repU of Raab 2024, doi:10.48550/arXiv.2406.16826)."""
    targets: tuple[TargetDisclosure, ...]
    """Attribute disclosure, one entry for each target."""


def disclosure(
    original: Tabular,
    synthetic: Tabular | Sequence[Tabular],
    keys: Sequence[str],
    targets: Sequence[str] | None = None,
) -> Disclosure:
    """Measure what synthetic files disclose to an intruder who knows some variables.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, or data frames. A missing value counts as a level.
    keys
        Variables that the intruder knows.
    targets
        Variables that the intruder would like to know; by default all others.

    Raises
    ------
    ValueError
        If no file or no key is given, or schemas differ; a MicrodataError if a variable is unknown,
        or is both a key and a target.

    Examples
    --------
    >>> found = bnp.evaluation.disclosure(table, files, keys=["age", "sex"], targets=["education"])
    >>> 0 <= found.targets[0].disco <= 1
    True
    """
    original, synthetic, _ = coded_files(
        "disclosure(original, synthetic, keys)", original, synthetic
    )
    names = original.schema.variables
    targets = [name for name in names if name not in keys] if targets is None else targets
    for name in (*keys, *targets):
        if name not in names:
            raise unknown_variable(name, names, "variable")
    if not keys:
        raise ValueError("name at least one key variable")
    if both := set(keys) & set(targets):
        raise ValueError(f"{sorted(both)[0]!r} is both a key and a target")
    columns, of_files = [names.index(name) for name in keys], []
    # One file at a time: the cells of all together become more with each.
    for file in synthetic:
        own, made = _counts([original, file], columns)
        alone, alone_there = own == 1, made == 1
        of_files.append([alone.sum() / own.sum(), alone_there.sum() / made.sum(),
                         (alone & alone_there).sum() / own.sum()])  # fmt: skip
    in_original, in_synthetic, replicated = np.mean(of_files, axis=0)
    return Disclosure(
        keys=tuple(keys),
        unique_in_original=float(in_original),
        unique_in_synthetic=float(in_synthetic),
        replicated_uniques=float(replicated),
        targets=tuple(_of_target(original, synthetic, keys, target) for target in targets),
    )


def _of_target(original, synthetic, keys, target) -> TargetDisclosure:
    """Attribute disclosure of one target."""
    names = original.schema.variables
    columns, of_files = [names.index(name) for name in (*keys, target)], []
    for file in synthetic:
        counts, group = _counts([original, file], columns, by_all_but_last=True)
        total = np.zeros((2, group.max() + 1), np.int64)
        for row, count in zip(total, counts, strict=True):
            np.add.at(row, group, count)
        in_original, there = (counts > 0) & (counts == total[:, group])
        own, made = counts
        of_files.append([
            own @ in_original / own.sum(), made @ there / made.sum(),
            own @ there / own.sum(), own @ (there & in_original) / own.sum(),
        ])  # fmt: skip
    return TargetDisclosure(target, *map(float, np.mean(of_files, axis=0)))


def _counts(tables, columns, by_all_but_last=False):
    """(files, cells) records in each cell of some columns; also the group of each cell.

    Cells are in one group if they differ only in the last column.
    """
    # A missing value is a further level, the first.
    parts = [(x.codes[:, columns] + 1, x.counts) for x in (table.tabulated for table in tables)]
    sizes = [tables[0].schema.num_levels[j] + 1 for j in columns]
    codes, counts = count_in_cells(parts, sizes)
    if not by_all_but_last:
        return counts
    # In lexicographic order, cells that differ only in the last column are neighbours.
    begins = np.ones(len(codes), bool)
    begins[1:] = (np.diff(codes[:, :-1], axis=0) != 0).any(axis=1)
    return counts, np.cumsum(begins) - 1


class Replicated(NamedTuple):
    """Combinations that only one record of the original has, and their records in the files."""

    uniques: int
    """Number of records that are alone in their cell in the original."""
    found: tuple[int, ...]
    """For each file: the number of these cells in which the file has a record."""
    found_unique: tuple[int, ...]
    """For each file: the number of these cells in which the file has exactly one record."""
    in_any: int
    """Number of these cells in which at least one file has a record."""
    in_all: int
    """Number of these cells in which every file has a record."""


def replicated_uniques(original: Tabular, synthetic: Tabular | Sequence[Tabular]) -> Replicated:
    """Count the uniques of the original whose combination occurs in synthetic files.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, or data frames, of which the complete records are used.

    Notes
    -----
    Combinations may occur again by chance; if the model is good, more of them do. The counts are
    not probabilities that an intruder learns something.

    Examples
    --------
    >>> found = bnp.evaluation.replicated_uniques(table, files)
    >>> found.uniques == len(table.tabulated.unique_cells)
    True
    """
    original, synthetic, _ = coded_files(
        "replicated_uniques(original, synthetic)", original, synthetic
    )
    # One file at a time: the cells of all together become more with each.
    found, found_unique = [], []
    files_with = np.zeros(int((common_cells([original])[1] == 1).sum()), int)
    for file in synthetic:
        _, (own, count) = common_cells([original, file])
        there = count[own == 1]
        found.append(int((there > 0).sum()))
        found_unique.append(int((there == 1).sum()))
        files_with += there > 0
    return Replicated(
        len(files_with),
        tuple(found),
        tuple(found_unique),
        int((files_with > 0).sum()),
        int((files_with == len(synthetic)).sum()),
    )
