"""All cells of the three-way tables of a set of variables, as one long vector."""

from itertools import combinations
from math import prod

import numpy as np

import bnp_models as bnp


class ThreeWay:
    """The three-way tables of a schema, in the order of `itertools.combinations`.

    Attributes
    ----------
    triples : list of tuples
        Variables of each table.
    table : (E,) array
        Table of each cell.
    """

    def __init__(self, schema: bnp.Schema):
        self.num_levels = schema.num_levels
        self.triples = list(combinations(range(len(self.num_levels)), 3))
        self._shapes = [tuple(self.num_levels[j] for j in triple) for triple in self.triples]
        self.table = np.repeat(np.arange(len(self.triples)), [prod(s) for s in self._shapes])

    def counts(self, codes: np.ndarray) -> np.ndarray:
        """(E,) int32: records of (n, J) level codes in each cell."""
        columns = np.ascontiguousarray(codes.T)
        cells = [
            np.bincount(np.ravel_multi_index(columns[list(triple)], shape), minlength=prod(shape))
            for triple, shape in zip(self.triples, self._shapes, strict=True)
        ]
        return np.concatenate(cells).astype(np.int32)

    def impossible(self, zeros: bnp.StructuralZeros) -> np.ndarray:
        """(E,) bool: no feasible record is in the cell."""
        blocks = []
        for triple, shape in zip(self.triples, self._shapes, strict=True):
            records = np.full((prod(shape), len(self.num_levels)), -1, np.int32)
            records[:, list(triple)] = np.indices(shape).reshape(3, -1).T
            blocks.append(~zeros.admits(records))
        return np.concatenate(blocks)
