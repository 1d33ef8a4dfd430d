"""Sizes of arrays that compiled programs are shared by."""


def coarse_size(number: int, multiple: int = 1) -> int:
    """Least of a few sizes that is at least `number`, eight to each doubling.

    Data of nearly one size, padded to it, share compiled programs; the padding is an eighth of the
    data at the most, or less than `multiple`, which divides the size if it is a power of two.
    """
    step = max(multiple, 2 ** max(0, max(number - 1, 1).bit_length() - 4))
    return -(-max(number, 1) // step) * step
