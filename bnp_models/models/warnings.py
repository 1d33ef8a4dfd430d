"""Sentences for `Model.warnings` that models share."""

import numpy as np

from bnp_models.data.display import counted


def last_class_used(draws: dict[str, np.ndarray], unit: str = "record") -> str | None:
    """Warn of members in the last class, if "last_class" was kept."""
    most = int(np.max(draws.get("last_class", 0), initial=0))
    if most == 0:
        return None
    return (
        f"too few classes: in a kept draw, {counted(most, unit)} {'is' if most == 1 else 'are'} in "
        "the last class, which stands for all further classes; raise components (--components)"
    )


def too_many_augmented(draws: dict[str, np.ndarray]) -> str | None:
    """Warn that some draw had too many impossible records to count ("augmented" is -1)."""
    if np.min(draws.get("augmented", 0), initial=0) >= 0:
        return None
    return (
        "nearly everything is impossible: a kept draw needed more records of the impossible region "
        "than can be counted, and the rest were left out; look for conditions or rules that "
        "exclude too much"
    )
