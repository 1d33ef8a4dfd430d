"""Propensity scores by classification trees, which see interactions of any order."""

from typing import NamedTuple

import jax
import numpy as np

from bnp_models.data.contingency import common_cells
from bnp_models.data.frames import Tabular
from bnp_models.evaluation.files import coded_files
from bnp_models.kernels.variates.rng import numpy_generator
from bnp_models.models.options import key_or_default

# As synthpop grows them: records of a leaf, and the gain of a split.
_LEAF, _GAIN = 5, 1e-8

_PERMUTATIONS = 10


class TreePropensity(NamedTuple):
    """Propensity-score mean squared error (pMSE) of one synthetic file, by a tree.

    Examples
    --------
    >>> bnp.evaluation.tree_propensity(table, files[0]).ratio >= 0
    True
    """

    pmse: float
    """Mean squared error."""
    expected: float
    """Expected value, estimated by permuting at random which records are synthetic."""
    ratio: float
    """pMSE divided by its expected value: about 1 if nothing tells the records apart."""


def tree_propensity(
    original: Tabular, synthetic: Tabular, *, key: jax.Array | None = None
) -> TreePropensity:
    """Score how well a classification tree tells synthetic records from the original's.

    Parameters
    ----------
    original, synthetic
        Files of the same schema, or data frames, of which the complete records are used.
    key
        Random key of the permutations, and of which of two equal splits a tree takes. Default:
        `jax.random.key(0)`.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.
    ValueError
        If schemas differ, or a file has no complete record.

    Notes
    -----
    The expected value is the mean of ten permutations of which records are synthetic, for which a
    tree finds something too (Snoke et al. 2018, doi:10.1111/rssa.12358, section 3.3).

    Examples
    --------
    >>> score = bnp.evaluation.tree_propensity(table, files[0], key=jax.random.key(1))
    >>> 0 <= score.pmse <= 0.25
    True
    """
    from sklearn.tree import DecisionTreeClassifier

    original, (synthetic,), _ = coded_files(
        "tree_propensity(original, synthetic)", original, [synthetic], complete=True
    )
    codes, counts = common_cells([original, synthetic])
    records = np.concatenate([np.repeat(codes, number, axis=0) for number in counts])
    features = _indicators(records, original.schema.num_levels)
    made = np.repeat([0, 1], counts.sum(axis=1))
    rng = numpy_generator(key_or_default(key))
    state = int(rng.integers(2**31))

    def pmse(labels):
        tree = DecisionTreeClassifier(
            min_samples_leaf=_LEAF, min_impurity_decrease=_GAIN, random_state=state
        )
        fitted = tree.fit(features, labels).predict_proba(features)[:, 1]
        return float(np.mean((fitted - made.mean()) ** 2))

    value = pmse(made)
    expected = float(np.mean([pmse(rng.permutation(made)) for _ in range(_PERMUTATIONS)]))
    return TreePropensity(value, expected, value / expected if expected > 0 else 0.0)


def _indicators(codes, num_levels):
    """Sparse columns of 0 and 1, one a level."""
    from scipy import sparse

    first = np.cumsum((0, *num_levels[:-1]))
    rows = np.repeat(np.arange(len(codes)), codes.shape[1])
    shape = (len(codes), sum(num_levels))
    ones = np.ones(codes.size, np.float32)
    return sparse.csc_matrix((ones, (rows, (codes + first).reshape(-1))), shape=shape)
