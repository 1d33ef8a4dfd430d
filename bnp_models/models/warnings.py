"""Sentences for `Model.warnings` that models share."""

from collections.abc import Iterable

import numpy as np


def those_given(sentences: Iterable[str | None]) -> list[str]:
    """Leave None out of the sentences."""
    return [sentence for sentence in sentences if sentence is not None]


def last_class_used(draws: dict[str, np.ndarray]) -> str | None:
    """Warning of records in the last class, where "last_class" is among the draws."""
    most = int(np.max(draws.get("last_class", 0), initial=0))
    if most == 0:
        return None
    return (
        f"too few classes: in a kept draw, {most} records are in the last class, which takes "
        "all that the others leave; raise components (--components)"
    )


def too_many_augmented(draws: dict[str, np.ndarray]) -> str | None:
    """Warning of impossible records beyond counting, "augmented" of -1 in a draw."""
    if np.min(draws.get("augmented", 0), initial=0) >= 0:
        return None
    return (
        "nearly everything is impossible: in a kept draw more records of the impossible region "
        "than can be counted were left out; look for conditions that exclude too much"
    )
