"""A model of one class and one file: all that the rest of the package asks of a sixth model."""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import betaln

import bnp_models as bnp
from bnp_models.kernels.variates.gamma import log_dirichlet
from bnp_models.kernels.variates.rng import uniform, words
from bnp_models.models.model import FixedComponents, PredictsCells


class Info(NamedTuple):
    left_over: jax.Array


class DirichletMultinomial(FixedComponents, PredictsCells):
    """Cells with probabilities p ~ Dir(alpha): given the data, p ~ Dir(alpha + counts)."""

    alpha: float = 0.5

    name: ClassVar[str] = "dirichlet-multinomial"
    scalars: ClassVar[tuple[str, ...]] = ("alpha",)
    parameters: ClassVar[tuple[str, ...]] = ("log_p",)
    components: ClassVar[int] = 1
    max_exact_variables: ClassVar[float] = math.inf

    def prepare(self, table, conditions=None):
        num_levels = table.schema.num_levels
        cells = np.ravel_multi_index(table.codes.T, num_levels)
        return jnp.asarray(np.bincount(cells, minlength=math.prod(num_levels)), jnp.float32)

    def init(self, key, data, capacity, num_components):
        return jnp.full(data.shape, -jnp.log(data.size))

    def sweep(self, key, state, data, iteration):
        return log_dirichlet(key, self.alpha + data), Info(left_over=jnp.zeros(()))

    def keep(self, state, info):
        return {"alpha": jnp.asarray(self.alpha), "log_p": state}

    def log_cell_probability(self, key, draw, cells, num_levels, *, method="exact", num_draws=0):
        return draw["log_p"][jnp.ravel_multi_index(tuple(cells.T), num_levels, mode="clip")]

    def simulate_records(self, key, draw, num_records, num_levels, feasible=None):
        u = uniform(words(key, (num_records,)))
        cells = jnp.searchsorted(jnp.cumsum(jnp.exp(draw["log_p"])), u)
        return jnp.stack(jnp.unravel_index(cells, num_levels))


POPULATION, NUM_LEVELS = 400, (3, 4, 5)


def test_risk_by_a_model_of_one_file():
    """tau_1 given the draws has the mean that the beta posterior of a unique's cell gives it."""
    codes = np.random.default_rng(0).integers(0, NUM_LEVELS, (40, 3)) // (1, 1, 2)
    schema = bnp.Schema(("a", "b", "c"), tuple(tuple(range(size)) for size in NUM_LEVELS))
    table = bnp.Microdata(schema, codes)
    model = DirichletMultinomial()
    run = bnp.sample(
        model, table, key=jax.random.key(0), num_chains=2, num_warmup=0, num_samples=2000
    )
    risk = bnp.population_risk(run, POPULATION, ties="off")

    total = 40 + model.alpha * math.prod(NUM_LEVELS)
    shape, num_new = (1 + model.alpha, total - 1 - model.alpha), POPULATION - 40
    stays = np.exp(betaln(shape[0], shape[1] + num_new) - betaln(*shape))
    uniques = int((table.cells().counts == 1).sum())
    assert uniques > 5
    for tau1 in (risk.tau1_conditional, risk.tau1):
        error = tau1.std() / math.sqrt(tau1.size)
        assert abs(tau1.mean() - uniques * stays) < 4 * error
    np.testing.assert_allclose(risk.r1, stays, rtol=0.1)
    log_p = model.log_cell_probability(
        None, {"log_p": run.draws["log_p"][0, 0]}, table.codes, NUM_LEVELS
    )
    assert log_p.shape == (40,)
    draw = {"log_p": jnp.log(jnp.zeros(60).at[17].set(1.0))}
    new = model.simulate_records(jax.random.key(1), draw, 3, NUM_LEVELS)
    np.testing.assert_array_equal(new.T, [np.unravel_index(17, NUM_LEVELS)] * 3)


class Counted(DirichletMultinomial):
    """Notes every tracing of its sweep."""

    tracings: ClassVar[list[jax.Array]] = []

    def init(self, key, data, capacity, num_components):
        return jax.nn.log_softmax(0 * data)

    def sweep(self, key, state, data, iteration):
        self.tracings.append(iteration)
        return super().sweep(key, state, data, iteration)


def test_a_sweep_is_traced_once():
    """For its shapes and for its program: tracing takes as long as compiling."""
    frame = pd.DataFrame({"a": list("xyxx"), "b": list("uuvv")})
    bnp.sample(Counted(), frame, key=jax.random.key(0), num_chains=2, num_warmup=2, num_samples=2)
    assert len(Counted.tracings) == 1
