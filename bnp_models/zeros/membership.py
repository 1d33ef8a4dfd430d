"""Membership of records in the impossible region, looked up in its decision diagram."""

from collections.abc import Callable

import numpy as np

from bnp_models.data.schema import MicrodataError, Schema
from bnp_models.zeros.boxes import FEASIBLE, IMPOSSIBLE, level_offsets
from bnp_models.zeros.diagram import Diagram, Walk

# Records looked up at once, and entries of the largest array of nodes that they reach.
_RECORDS, _REACHED = 8192, 1 << 27


def contains(walk: Walk, schema: Schema, codes: np.ndarray) -> np.ndarray:
    """Return whether complete records are impossible.

    Parameters
    ----------
    walk : Walk
        Lookup tables of the diagram.
    schema : Schema
        The J variables and their levels.
    codes : (n, J) integer array
        Level codes.

    Returns
    -------
    (n,) bool array

    Raises
    ------
    MicrodataError
        If a code is missing (-1) or out of range.
    """
    codes = _checked_shape(schema, codes)
    strides = walk.strides.astype(np.float32)
    limits = np.tile(np.array(schema.num_levels, dtype=np.uint32), _RECORDS)
    result = np.empty(len(codes), dtype=bool)
    for start in range(0, len(codes), _RECORDS):
        chunk = np.ascontiguousarray(codes[start : start + _RECORDS])
        # As unsigned numbers, negative codes are too large: one comparison checks both ends.
        if (chunk.view(np.uint32).reshape(-1) >= limits[: chunk.size]).any():
            raise _out_of_range(schema, chunk, start, missing_allowed=False)
        # A float32 product is exact here (indices are below 2^24) and, unlike an integer one,
        # runs on BLAS.
        # BLAS may flag what it reads beyond the end of an array as invalid.
        with np.errstate(invalid="ignore"):
            index = (chunk.astype(np.float32) @ strides).astype(np.intp)
        position = np.full(len(chunk), walk.start, dtype=np.int32)
        for g in range(index.shape[1]):
            position = walk.table.take(index[:, g] + position)
        np.equal(position, IMPOSSIBLE, out=result[start : start + len(chunk)])
    return result


def admits(diagram: Diagram, schema: Schema, codes: np.ndarray) -> np.ndarray:
    """Return whether records have a feasible completion; complete ones, whether they are feasible.

    Parameters
    ----------
    diagram : Diagram
        The impossible region.
    schema : Schema
        The J variables and their levels.
    codes : (n, J) integer array
        Level codes, -1 where missing.

    Returns
    -------
    (n,) bool array

    Raises
    ------
    MicrodataError
        If a code is out of range.
    """
    codes = _checked_shape(schema, codes)
    offsets = level_offsets(schema.num_levels)
    edge_sets = [
        np.append(diagram.sets[e, offsets[j] : offsets[j + 1]], True)
        for e, j in enumerate(diagram.variable[diagram.parent])
    ]
    result = np.empty(len(codes), dtype=bool)
    step = walkers_at_once(diagram)
    for start in range(0, len(codes), step):
        chunk = np.ascontiguousarray(codes[start : start + step].T)
        if (chunk < -1).any() or (chunk.T >= schema.num_levels).any():
            raise _out_of_range(schema, chunk.T, start, missing_allowed=True)

        def takes(e, j, chunk=chunk):
            # The code -1 picks an edge's last entry: a missing value takes every edge.
            return edge_sets[e][chunk[j]]

        result[start : start + chunk.shape[1]] = reach(diagram, chunk.shape[1], takes)[FEASIBLE]
    return result


def reach(diagram: Diagram, n: int, takes: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Return which terminals n walkers reach, each of whom may take several edges of a node.

    Parameters
    ----------
    diagram : Diagram
        The diagram that the walkers descend, from its root.
    n : int
        Number of walkers, at most `walkers_at_once`.
    takes : callable
        ``takes(e, j)`` says of each walker whether edge e, of variable j, is open to it, (n,) bool.

    Returns
    -------
    (2, n) bool array
        Rows FEASIBLE and IMPOSSIBLE.
    """
    reached = np.zeros((len(diagram.variable), n), dtype=bool)
    reached[diagram.root] = True
    for e in range(len(diagram.parent) - 1, -1, -1):
        node = diagram.parent[e]
        reached[diagram.child[e]] |= reached[node] & takes(e, diagram.variable[node])
    return reached[:2]


def walkers_at_once(diagram: Diagram) -> int:
    """Return how many walkers `reach` takes at once in moderate memory."""
    return max(1, min(_RECORDS, _REACHED // len(diagram.variable)))


def _checked_shape(schema: Schema, codes: np.ndarray) -> np.ndarray:
    """Return codes as int32; refuse other shapes and types."""
    codes = np.asarray(codes)
    if codes.ndim != 2 or codes.shape[1] != len(schema.variables):
        raise MicrodataError(
            f"codes have shape {codes.shape}; expected (n, {len(schema.variables)})"
        )
    if not np.issubdtype(codes.dtype, np.integer):
        raise MicrodataError(f"codes have dtype {codes.dtype}; expected integers")
    if codes.dtype != np.int32:
        # Codes that do not fit are out of range in any case, and stay so when clipped.
        codes = np.clip(codes, -2, 2**31 - 1).astype(np.int32)
    return codes


def _out_of_range(
    schema: Schema, chunk: np.ndarray, start: int, missing_allowed: bool
) -> MicrodataError:
    """Return the error for the first code out of range in records from row `start` on."""
    least = -1 if missing_allowed else 0
    row, j = np.argwhere((chunk < least) | (chunk >= schema.num_levels))[0]
    problem = f"code {chunk[row, j]} is not between {least} and {schema.num_levels[j] - 1}"
    if chunk[row, j] == -1:
        problem = "the value is missing; complete the record, or use admits"
    return MicrodataError(problem, row=start + int(row), column=schema.variables[j])
