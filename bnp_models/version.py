"""The version, for the modules that record it and for the build."""

__version__ = "0.1.0"
