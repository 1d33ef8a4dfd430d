"""The command ``bnp-models``: nothing that a notebook could not do in as many lines."""

from bnp_models.cli.main import main

__all__ = ["main"]
