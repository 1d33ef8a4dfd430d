"""Partitions of the constrained variables of boxes, listed for `UrnBoxes` on the host."""

from typing import TypeAlias

import numpy as np

from bnp_models.kernels.boxes.level_parts import LevelParts

MAX_PARTITIONS = 200_000
"""Largest number of partitions of all boxes together that are listed."""


# Number of partitions that are summed at once for a type of block.
_PARTITIONS_AT_ONCE = 16


class TooManyPartitions(ValueError):
    """The boxes constrain so many variables that their partitions cannot be listed."""


Block: TypeAlias = tuple[tuple[int, int], ...]
"""Type of a block: its variables, each with the number of its level set."""


def require_listable(boxes: np.ndarray, num_levels: tuple[int, ...]) -> None:
    """Raise `TooManyPartitions` if boxes, (D, R) sets of levels, have too many to list."""
    ends = np.cumsum(num_levels)
    full = [boxes[:, e - n : e].all(axis=1) for e, n in zip(ends, num_levels, strict=True)]
    sizes, times = np.unique(len(num_levels) - np.sum(full, axis=0), return_counts=True)
    if sum(_bell(d) * t for d, t in zip(sizes, times.tolist(), strict=True)) > MAX_PARTITIONS:
        raise TooManyPartitions(
            f"boxes of up to {sizes.max()} variables have too many partitions to list"
        )


def sets_of_boxes(parts: LevelParts) -> tuple[np.ndarray, list[Block]]:
    """Rows (S, R) of each level set, and each box's variables with their sets."""
    variable, part_of_row = np.asarray(parts.variable), np.asarray(parts.part_of_row)
    # Numbers beyond the last part are padding, which is removed.
    members = [line[line < variable.size] for line in np.asarray(parts.sets)]
    has_row = np.array([np.isin(part_of_row, line) for line in members], bool)
    return has_row.reshape(len(members), part_of_row.size), [
        tuple((int(variable[members[s][0]]), int(s)) for s in np.flatnonzero(has_set))
        for has_set in np.asarray(parts.box_has_set).T
    ]


def list_partitions(
    sets_of_box: list[Block],
) -> tuple[dict[Block, int], list[int], dict[tuple[int, int], tuple[np.ndarray, np.ndarray]], int]:
    """Number the types of blocks, and list the partitions of all boxes by (d, B).

    Returns
    -------
    types
        Numbers of the types of blocks.
    whole
        Type of each box's whole block.
    listed
        For each pair (d, B), the types of the blocks of its partitions (P, B), and prod (|b| - 1)!
        of each. Pairs with few blocks come first.
    number_few
        Number of pairs with few blocks.
    """
    types: dict[Block, int] = {}
    whole: list[int] = []
    by_size = {d: _partitions(d) for d in {len(box) for box in sets_of_box}}
    found: dict[tuple[int, int], list[tuple[np.ndarray, np.ndarray]]] = {}
    for box in sets_of_box:
        d = len(box)
        type_of_mask = np.zeros(2**d, int)
        for mask in range(1, 2**d):
            block = tuple(box[v] for v in range(d) if mask >> v & 1)
            type_of_mask[mask] = types.setdefault(block, len(types))
        whole.append(int(type_of_mask[-1]))
        for num_blocks, (masks, orders) in by_size[d].items():
            found.setdefault((d, num_blocks), []).append((type_of_mask[masks], orders))
    few = (max(map(len, sets_of_box), default=1) + 1) // 2
    listed = {}
    for pair in sorted(found, key=lambda pair: (pair[1] > few, pair)):
        blocks, orders = zip(*found[pair], strict=True)
        listed[pair] = np.concatenate(blocks), np.concatenate(orders)
    return types, whole, listed, sum(num_blocks <= few for _, num_blocks in listed)


def _partitions(d: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Partitions of d variables by number of blocks: masks (P, B) and prod (size - 1)! (P,)."""
    by_blocks = {0: np.zeros((1, 0), np.int64)}
    for v in range(d):
        grown: dict[int, list] = {}
        for num_blocks, masks in by_blocks.items():
            for b in range(num_blocks):
                joined = masks.copy()
                joined[:, b] |= 1 << v
                grown.setdefault(num_blocks, []).append(joined)
            alone = np.full((len(masks), 1), 1 << v)
            grown.setdefault(num_blocks + 1, []).append(np.concatenate([masks, alone], axis=1))
        by_blocks = {b: np.concatenate(parts) for b, parts in grown.items()}
    size = np.array([bin(mask).count("1") for mask in range(2**d)])
    factorial = np.cumprod(np.maximum(np.arange(d + 1), 1)).astype(float)
    return {
        b: (masks, np.prod(factorial[size[masks] - 1], axis=1)) for b, masks in by_blocks.items()
    }


def _bell(d):
    """Number of partitions of d variables."""
    row = [1]
    for _ in range(d):
        row = [row[-1], *row]
        for i in range(1, len(row)):
            row[i] += row[i - 1]
    return row[0]


def halve_types(
    types: dict[Block, int],
) -> tuple[tuple[dict[tuple[int, ...], int], ...], list[list[int]]]:
    """Numbered level sets of the two halves of each type, and the two halves of each type.

    The variables are divided into two halves, so that a block's product has two factors.
    """
    variables = sorted({j for block in types for j, _ in block})
    low = set(variables[: len(variables) // 2])
    halves: tuple[dict[tuple[int, ...], int], ...] = ({}, {})
    half_of_type = []
    for block in types:
        split = [tuple(s for j, s in block if (j in low) == side) for side in (True, False)]
        half_of_type.append(
            [half.setdefault(sets, len(half)) for half, sets in zip(halves, split, strict=True)]
        )
    return halves, half_of_type


def padded(lists, fill):
    """Array with the lists as rows; short ones are padded."""
    width = max(map(len, lists), default=1)
    lines = np.full((len(lists), max(width, 1)), fill)
    for line, values in zip(lines, lists, strict=True):
        line[: len(values)] = values
    return lines


def side_by_side(parts, fill):
    """Join arrays (P, B) along P into (most B, all P); narrow ones are padded."""
    width = max((part.shape[1] for part in parts), default=1)
    wide = [np.zeros((0, width), int)]
    for part in parts:
        wide.append(np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill))
    return np.concatenate(wide).T


def invert(blocks, num_types):
    """Type of each row, and the rows of partitions that have a block of that type."""
    kind = np.concatenate([part.reshape(-1) for part in blocks])
    ends = np.cumsum([part.shape[1] for part in blocks])
    index = np.concatenate(
        [np.tile(np.arange(end - part.shape[1], end), len(part))
         for end, part in zip(ends, blocks, strict=True)]
    )  # fmt: skip
    order = np.argsort(kind, kind="stable")
    order = order[kind[order] < num_types]
    kind, index = kind[order], index[order]
    count = np.bincount(kind, minlength=num_types)
    rows = -(-count // _PARTITIONS_AT_ONCE)
    place = np.arange(kind.size) - np.repeat(np.cumsum(count) - count, count)
    row = np.repeat(np.cumsum(rows) - rows, count) + place // _PARTITIONS_AT_ONCE
    having = np.full((rows.sum(), _PARTITIONS_AT_ONCE), ends[-1])
    having[row, place % _PARTITIONS_AT_ONCE] = index
    return np.repeat(np.arange(num_types), rows), having
