"""Models by the names of the command line, and which command takes which."""

from bnp_models.models.cells.polettini_stander import PolettiniStander
from bnp_models.models.latent_classes.nplcm import NPLCM, TNPLCM
from bnp_models.models.mixed_membership.fixed_profiles import MixedMembership
from bnp_models.models.mixed_membership.hdp import HDPMixedMembership
from bnp_models.models.nested.ndpmpm import NDPMPM

# A later model is one more line: its name, its class, and the options that are its fields.
MODELS = {
    "hdp": (HDPMixedMembership, ("concentration", "augmentation", "not_applicable")),
    "mixed-membership": (MixedMembership, ("components", "augmentation", "not_applicable")),
    "nplcm": (NPLCM, ("components",)),
    "tnplcm": (TNPLCM, ("components",)),
    "ndpmpm": (
        NDPMPM,
        (
            "components",
            "member_components",
            "relative",
            "grouped",
            "level_concentration",
            "impossible_weight",
        ),
    ),
    "polettini-stander-1": (PolettiniStander, ("alpha", "a", "b")),
    "polettini-stander-2": (PolettiniStander, ("alpha", "a", "gamma", "empty_phat")),
}

# Models of cells rather than of records: they have no sweeps, and more options.
CELL_MODELS = {"polettini-stander-1": 1, "polettini-stander-2": 2}

MODELS_OF = {
    "risk": ("hdp", "mixed-membership", "nplcm", "tnplcm", *CELL_MODELS),
    "synthesize": ("tnplcm", "nplcm", "ndpmpm"),
    "impute": ("tnplcm", "nplcm", "ndpmpm"),
}  # The first is the default.
