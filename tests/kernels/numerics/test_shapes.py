"""Sizes that compiled programs are shared by."""

import pytest

from bnp_models.kernels.numerics.platforms import coarse_size


@pytest.mark.parametrize("multiple", [1, 128])
def test_sizes_are_few_and_not_much_larger(multiple):
    numbers = range(1, 5000)
    sizes = [coarse_size(number, multiple) for number in numbers]
    assert all(
        number <= size <= max(number * 9 / 8, number + multiple - 1)
        for number, size in zip(numbers, sizes, strict=True)
    )
    assert all(size % multiple == 0 for size in sizes)
    assert len({size for size in sizes if size >= 16}) <= 8 * 9


def test_padded_once_more_it_stays():
    assert [coarse_size(size) for size in (1, 16, 17, 1024, 1025)] == [1, 16, 18, 1024, 1152]
