"""The command ``bnp-models``. A notebook can do everything that it does in as many lines."""

from bnp_models.cli.main import main

__all__ = ["main"]
