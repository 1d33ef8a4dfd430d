"""Models by the names of the command line, and which command takes which.

Nothing is imported until a model is loaded, so that ``bnp-models --help`` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from bnp_models.data.source import Source


class Registered(NamedTuple):
    """Model of the command line."""

    path: str
    """Module and class, as "models.nested.ndpmpm:NDPMPM"."""
    options: tuple[str, ...]
    """Options of the command line that are fields of the class."""

    def load(self) -> Any:
        """Import the class of the model."""
        module, name = self.path.split(":")
        return vars(importlib.import_module(f"bnp_models.{module}"))[name]


# A later model is one more line: its name, its class, and the options that are its fields.
MODELS = {
    "hdp": Registered(
        "models.mixed_membership.hdp:HDPMixedMembership",
        ("concentration", "augmentation", "not_applicable", "level_prior", "ordered", "groups"),
    ),
    "mixed-membership": Registered(
        "models.mixed_membership.fixed_profiles:MixedMembership",
        ("components", "augmentation", "not_applicable", "level_prior", "ordered", "groups"),
    ),
    "nplcm": Registered(
        "models.latent_classes.nplcm:NPLCM", ("components", "level_prior", "ordered", "groups")
    ),
    "tnplcm": Registered(
        "models.latent_classes.nplcm:TNPLCM", ("components", "level_prior", "ordered", "groups")
    ),
    "ndpmpm": Registered(
        "models.nested.ndpmpm:NDPMPM",
        (
            "components",
            "member_components",
            "relative",
            "level_prior",
            "ordered",
            "groups",
            "impossible_weight",
            "sizes",
        ),
    ),
    "polettini-stander-1": Registered(
        "models.cells.polettini_stander:PolettiniStander", ("alpha", "a", "b")
    ),
    "polettini-stander-2": Registered(
        "models.cells.polettini_stander:PolettiniStander", ("alpha", "a", "gamma", "empty_phat")
    ),
}

# Models of persons within households.
HOUSEHOLD_MODELS = ("ndpmpm",)

# Models of cells rather than of records, with the number of each: they have no sweeps.
CELL_MODELS = {"polettini-stander-1": 1, "polettini-stander-2": 2}

# Models of each command; the first is the default.
MODELS_OF = {
    "risk": ("hdp", "mixed-membership", "nplcm", "tnplcm", *CELL_MODELS),
    "protect": ("hdp", "mixed-membership", "nplcm", "tnplcm"),
    "compare": ("hdp", "mixed-membership", "nplcm", "tnplcm"),
    "synthesize": ("tnplcm", "nplcm", "hdp", "mixed-membership", "ndpmpm"),
    "impute": ("tnplcm", "nplcm", "ndpmpm"),
}


def counts_cells(command: str, model: str, sample: "Source") -> bool:
    """Whether a command reads its sample, a folder, into cells with counts, as its model may."""
    if command not in ("risk", "synthesize") or model in CELL_MODELS:
        return False
    return sample.is_folder and MODELS[model].load().takes_counts
