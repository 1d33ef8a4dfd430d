"""Types of command line arguments."""

import argparse

import pytest

from bnp_models.cli.argument_types import integer_type, number_at_least, number_of_variable


@pytest.mark.parametrize("text", ["1000000", "1,000,000", "1e6", "1_000_000", "10.0e5", "+1000000"])
def test_integers_as_people_write_them(text):
    assert integer_type(1, 2**53)(text) == 10**6


@pytest.mark.parametrize("text", ["1,5", "10,00", "1.5", "1/1", "many", "", "1e-3", "nan", "1e400"])
def test_what_is_no_integer(text):
    with pytest.raises(argparse.ArgumentTypeError):
        integer_type(1, 2**53)(text)


def test_a_number_of_a_variable():
    assert number_of_variable("a=b=85") == ("a=b", 85.0)
    for text in ("age", "age=", "=3", "age=nan", "age=inf"):
        with pytest.raises(argparse.ArgumentTypeError):
            number_of_variable(text)


def test_a_number_that_may_be_the_least():
    assert number_at_least(0)("0") == 0
    for text, said in (
        ("-1", "-1 is out of range; it must be at least 0"),
        ("x", "'x' is not a number"),
    ):
        with pytest.raises(argparse.ArgumentTypeError, match=said):
            number_at_least(0)(text)
