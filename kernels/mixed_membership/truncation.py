"""Quantities for moves under structural zeros: atoms of G_0, density, factor of the truncation.

Given the labels and tables of the sample, the posterior density of the level probabilities and of
the weights is a product of Dirichlet densities (`DirichletDensity`) times P(F)^-n (`Truncation`).
"""

from typing import NamedTuple

from jaxtyping import Array, Float, Int

from bnp_models.kernels.mixed_membership.urn_boxes import UrnBoxes
from bnp_models.kernels.variates.levels import Levels


class Atoms(NamedTuple):
    """Atoms of G_0, and what they give to the feasible region."""

    theta: Float[Array, "R K"]
    """Level probabilities."""
    g0: Float[Array, " K"]
    """Weights of the components."""
    totals: Float[Array, " Q"]
    """`partition_totals` of the feasible boxes under them."""


class DirichletDensity(NamedTuple):
    """Density of the atoms given the sample's labels and tables, without the truncation."""

    counts: Int[Array, "R K"]
    """Items of the sample by row and component."""
    levels: Levels
    """The levels under their prior."""
    tables: Float[Array, " K"] | Int[Array, " K"]
    """Dirichlet parameters of the weights: tables of each component, and what the prior adds."""
    others: Float[Array, ""]
    """That of the weight of all slots without a table: alpha_0, under a Dirichlet process."""


class Truncation(NamedTuple):
    """The factor P(F)^-n of the likelihood of a sample without infeasible records."""

    num_records: Int[Array, ""]
    """n."""
    weights: Float[Array, " Q"]
    """From `kernels.mixed_membership.urn_boxes.weights_by_size`."""
    feasible: UrnBoxes
    """The feasible boxes."""
