"""Commands of ``bnp-models`` by name, and the errors that stand for bad input."""

from bnp_models.cli.compare import compare_models
from bnp_models.cli.datasets import impute, synthesize
from bnp_models.cli.evaluate import evaluate
from bnp_models.cli.folder import UsageError
from bnp_models.cli.risk import risk
from bnp_models.data.schema import MicrodataError
from bnp_models.data.stata_spss import FormatError
from bnp_models.inference.checkpoint import CheckpointError
from bnp_models.models.cells.polettini_stander import NoMaximumError

COMMANDS = {
    "risk": risk,
    "synthesize": synthesize,
    "impute": impute,
    "evaluate": evaluate,
    "compare": compare_models,
}

BAD_INPUT = (MicrodataError, CheckpointError, NoMaximumError, FormatError, UsageError)
