"""The contract of a model."""

import equinox as eqx


class Model(eqx.Module):
    """What a model of chains gives."""
