"""A layer for ties, as a sensitivity analysis: cells in clumps beyond what a model explains.

    x_i | P ~ P,    P ~ DP(c_0, F)

with F the model's law of a record, given a kept draw. A small c_0 means records that repeat each
other's cells for reasons that the model does not know; where the model is right, c_0 goes to
infinity and nothing changes.
"""

from dataclasses import dataclass

import jax
import numpy as np
from scipy.special import gammaln

from bnp_models.inference.run import Run
from bnp_models.kernels.variates.rng import Keys, numpy_generator
from bnp_models.risk.population import (
    cell_probabilities,
    check_table,
    checked_method,
    checked_model,
    draw_joining,
)

CONCENTRATIONS = np.logspace(1, 10, 91)
"""Values of c_0, alike a priori: log-uniform."""

NUM_DRAWS = 200
"""Draws at which the sensitivity is evaluated, at the most."""


@dataclass(frozen=True, eq=False)
class TiesRisk:
    """Disclosure risk with a layer for ties over the fitted model."""

    concentration: np.ndarray
    """(draws,) draws of c_0."""
    tau1: np.ndarray
    """(draws,) draws of the number of sample uniques that are unique in the population."""
    tau2: np.ndarray
    """(draws,) draws of the sum over sample uniques of 1/F, F their population count."""


def ties_risk(
    run: Run,
    population_size: int,
    *,
    method: str = "auto",
    num_draws: int = NUM_DRAWS,
    key: jax.Array | None = None,
) -> TiesRisk:
    """Evaluate the risk of a sample with a layer for ties over the draws of a model.

    Parameters
    ----------
    run, population_size, method, key
        As for `population_risk`.
    num_draws
        Draws of the run that are evaluated, evenly spaced, at the most.

    Raises
    ------
    ValueError
        As `population_risk`.

    Notes
    -----
    Given F's probabilities b_c of the sample's cells and counts f_c, the likelihood of c_0 is
    Gamma(c_0) / Gamma(c_0 + n) prod_c Gamma(c_0 b_c + f_c) / Gamma(c_0 b_c), and the cells'
    probabilities are Dirichlet with parameters c_0 b_c + f_c. The draws are those of the model
    without ties, so that this is a sensitivity analysis and no posterior of both.
    """
    table, model = run.table, checked_model(run.model)
    check_table(table, population_size)
    method = checked_method(method, model, table)
    settings = run.settings
    kept = settings.num_chains * (settings.num_samples // settings.parameters_every)
    draws = run.parameters(max(1, -(-kept // num_draws)))
    key_particles, key_draws = Keys(run.key if key is None else key)
    generator = numpy_generator(key_draws)
    cells = table.cells()
    found: dict[str, list[float]] = {"concentration": [], "tau1": [], "tau2": []}
    for log_p, _, _ in cell_probabilities(run, draws, cells.codes, method, key_particles):
        for log_b in log_p:
            c = _draw_concentration(generator, np.exp(log_b), cells.counts)
            q = _draw_probabilities(generator, c, np.exp(log_b), cells.counts)[cells.unique_cells]
            joined = draw_joining(generator, q[None], population_size - table.n)[0]
            found["concentration"].append(c)
            found["tau1"].append(float(np.sum(joined == 0)))
            found["tau2"].append(float(np.sum(1 / (1 + joined))))
    return TiesRisk(**{name: np.array(values, float) for name, values in found.items()})


def log_likelihood(concentration: np.ndarray, base: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Log likelihood of c_0 (any shape) given F's probabilities of the cells and their counts."""
    c = np.asarray(concentration, float)[..., None]
    shape = np.maximum(c * base, 1e-300)
    rising = np.sum(gammaln(shape + counts) - gammaln(shape), axis=-1)
    c = c[..., 0]
    return rising + gammaln(c) - gammaln(c + counts.sum())


def _draw_concentration(generator, base, counts) -> float:
    """Draw c_0 from its posterior on the grid."""
    log_weight = log_likelihood(CONCENTRATIONS, base, counts)
    weight = np.exp(log_weight - log_weight.max())
    return float(generator.choice(CONCENTRATIONS, p=weight / weight.sum()))


def _draw_probabilities(generator, c, base, counts) -> np.ndarray:
    """Draw the probabilities of the sample's cells for a new record."""
    elsewhere = max(1 - base.sum(), 0.0)
    shape = np.append(c * base + counts, c * elsewhere)
    g = generator.standard_gamma(shape)
    return (g / g.sum())[:-1]
