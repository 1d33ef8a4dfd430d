"""Values in the words of messages."""

from bnp_models.data.messages import listed, listing, quoted


def test_a_long_value_is_shortened():
    assert quoted("x" * 70) == repr("x" * 70)
    assert quoted("x" * 1000) == f"'{'x' * 59}...{'x' * 9}'"


def test_a_long_list_says_how_many_there_are():
    assert listing([1, "a"]) == "1, 'a'"
    assert listing(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    assert listing(range(13)).endswith("10, 11, ... (13 in all)")


def test_an_enumeration_ends_with_the_word():
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(iter(["a", "b"]), "or") == "a or b"
