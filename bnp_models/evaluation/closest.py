"""Distances of synthetic records to the closest record of the original, and of a holdout."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from bnp_models.data.contingency import common_cells
from bnp_models.data.documents import Share
from bnp_models.data.frames import Tabular
from bnp_models.evaluation.files import coded_files
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import key_or_default

# Largest number of synthetic records of a file that are compared, and of pairs compared at once.
_MOST_RECORDS, _PAIRS_AT_ONCE = 5000, 2**24


class ClosestRecords(NamedTuple):
    """Distances to the closest record (numbers of variables that differ), as means over files.

    Examples
    --------
    >>> closest = bnp.evaluation.closest_records(table, files)
    >>> len(closest.share_by_distance)
    4
    """

    share_by_distance: tuple[Share, ...]
    """Synthetic records whose closest record of the original differs in 0, 1, ... variables."""
    original_by_distance: tuple[Share, ...]
    """The same for records of the original and their closest other record of the original."""
    holdout_by_distance: tuple[Share, ...] | None
    """With a holdout: the same for synthetic records and their closest record of the holdout. The
    original and the holdout are reduced to the same number of records for this."""
    closer_to_original: Share | None
    """Share of the synthetic records that are closer to the original than to the holdout; a record
    with equal distances counts half. It is 0.5 if they are no closer to the original."""
    standard_error: float | None
    """Standard error of this share if its expected value is 0.5 and records are independent."""


def closest_records(
    original: Tabular,
    synthetic: Tabular | Sequence[Tabular],
    holdout: Tabular | None = None,
    *,
    key: jax.Array | None = None,
) -> ClosestRecords:
    """Measure how close synthetic records are to those of the original.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, or data frames, of which the complete records are used.
    holdout
        Records of the same population from which the synthetic records were not made.
    key
        Random key. It chooses 5,000 records if a file has more, and the records of the holdout or
        of the original that are left out so that both have the same number. Default:
        `jax.random.key(0)`.

    Raises
    ------
    ValueError
        If no file is given, schemas differ, or a file has no complete record.

    References
    ----------
    Platzer, M. & Reutterer, T. (2021), doi:10.3389/fdata.2021.679939, for the share of records that
    are closer to the original than to a holdout.

    Examples
    --------
    >>> others = population.sample(60, seed=1)
    >>> closest = bnp.evaluation.closest_records(table, files, holdout=others)
    >>> 0 <= closest.closer_to_original <= 1
    True
    """
    original, synthetic, others = coded_files(
        "closest_records(original, synthetic)", original, synthetic, complete=True, holdout=holdout
    )
    holdout = others["holdout"]
    rng, variables = numpy_generator(key_or_default(key)), original.num_variables
    known, counts = _cells(original)
    chosen = [_records(rng, *_cells(file)) for file in synthetic]
    of_original = [_distances(records, known) for records in chosen]
    own = _records(rng, known, counts)
    by_distance = (
        _shares(of_original, variables), _shares([_distances(own, known, counts)], variables)
    )  # fmt: skip
    if holdout is None:
        return ClosestRecords(*by_distance, None, None, None)
    # Both have the same number of records, because in a larger file the closest record is closer.
    apart, of_holdout = _cells(holdout)
    size = min(counts.sum(), of_holdout.sum())
    near = known[_thinned(rng, counts, size) > 0]
    far = apart[_thinned(rng, of_holdout, size) > 0]
    of_near, of_far = ([_distances(records, part) for records in chosen] for part in (near, far))
    closer = [((a < b) + (a == b) / 2).mean() for a, b in zip(of_near, of_far, strict=True)]
    return ClosestRecords(
        *by_distance,
        _shares(of_far, variables),
        float(np.mean(closer)),
        0.5 / float(np.sqrt(sum(map(len, chosen)))),
    )


def _cells(table):
    """Codes and counts of the cells of the complete records."""
    codes, (counts,) = common_cells([table])
    return codes, counts


def _thinned(rng, counts, most):
    """Counts of the cells for at most `most` records, which are chosen at random."""
    if counts.sum() <= most:
        return counts
    return rng.multivariate_hypergeometric(counts, most, method="marginals")


def _records(rng, codes, counts):
    """Codes of the records of cells; if there are too many, of some chosen at random."""
    return np.repeat(codes, _thinned(rng, counts, _MOST_RECORDS), axis=0)


def _distances(records, codes, counts=None):
    """Number of variables in which each record differs from the closest cell.

    With `counts` the records are in these cells, and each is compared with the other records.
    """
    records, codes = (
        np.ascontiguousarray(x.astype(np.int32 if x.max() > 255 else np.uint8))
        for x in (records, codes)
    )
    step = max(1, _PAIRS_AT_ONCE // len(codes))
    nearest = []
    for start in range(0, len(records), step):
        part = records[start : start + step]
        differ = np.zeros((len(part), len(codes)), np.uint16)
        for j in range(codes.shape[1]):
            differ += part[:, j, None] != codes[None, :, j]
        if counts is not None:
            differ[(differ == 0) & (counts == 1)] = codes.shape[1]
        nearest.append(differ.min(axis=1))
    return np.concatenate(nearest)


def _shares(distances, variables):
    """Share of the records at each distance: mean over files."""
    shares = [np.bincount(x, minlength=variables + 1) / len(x) for x in distances]
    return tuple(map(float, np.mean(shares, axis=0)))
