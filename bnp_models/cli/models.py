"""Models by their names on the command line, and the commands that take each model.

Nothing is imported until a model is loaded, so that ``bnp-models --help`` is quick.
"""

import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bnp_models.data.source import Source


@dataclass(frozen=True)
class Registered:
    """Model of the command line."""

    path: str
    """Module and class, as "models.nested.ndpmpm:NDPMPM"."""
    named: tuple[str, ...] = ()
    """Its options, where its fields do not say which the command line has."""

    def load(self) -> Any:
        """Import the class of the model."""
        module, name = self.path.split(":")
        return vars(importlib.import_module(f"bnp_models.{module}"))[name]

    @functools.cached_property
    def options(self) -> tuple[str, ...]:
        """Options of the command line that are fields of the class, which is imported for it."""
        if self.named:
            return self.named
        options = importlib.import_module("bnp_models.models.options").options_of(self.load())
        return tuple(name for name, option in options.items() if option.command)


# A later model is one more line: its name and its class, whose fields say which are its options.
MODELS = {
    "hdp": Registered("models.mixed_membership.hdp:HDPMixedMembership"),
    "mixed-membership": Registered("models.mixed_membership.fixed_profiles:MixedMembership"),
    "nplcm": Registered("models.latent_classes.nplcm:NPLCM"),
    "tnplcm": Registered("models.latent_classes.nplcm:TNPLCM"),
    "ndpmpm": Registered("models.nested.ndpmpm:NDPMPM"),
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
    "risk": ("hdp", "mixed-membership", "nplcm", "tnplcm", "ndpmpm", *CELL_MODELS),
    "protect": ("hdp", "mixed-membership", "nplcm", "tnplcm", "ndpmpm"),
    "compare": ("hdp", "mixed-membership", "nplcm", "tnplcm"),
    "synthesize": ("tnplcm", "nplcm", "hdp", "mixed-membership", "ndpmpm"),
    "impute": ("tnplcm", "nplcm", "ndpmpm"),
}


def counts_cells(command: str, model: str, sample: "Source") -> bool:
    """Whether a command reads its sample, a folder, into cells with counts, as its model may."""
    if command not in ("risk", "synthesize") or model in CELL_MODELS:
        return False
    return sample.is_folder and MODELS[model].load().takes_counts
