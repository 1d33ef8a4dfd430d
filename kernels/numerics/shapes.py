"""Sizes to which arrays are padded, so that data of similar size share compiled programs."""


def coarse_size(number: int, multiple: int = 1) -> int:
    """Smallest of a few sizes that is at least `number`; there are eight sizes in each doubling.

    Data of similar sizes are padded to the same size and then share compiled programs. The padding
    is at most an eighth of the data, or less than `multiple`, which divides the size if it is a
    power of two.
    """
    step = max(multiple, 2 ** max(0, max(number - 1, 1).bit_length() - 4))
    return -(-max(number, 1) // step) * step
