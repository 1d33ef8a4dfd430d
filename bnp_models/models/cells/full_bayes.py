"""Samples of the hyperparameters of the Polettini-Stander hierarchy, by NumPyro's NUTS."""

import math
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logit

from bnp_models.data.arguments import check_kind
from bnp_models.data.display import Shown, counted, displayed, spread
from bnp_models.data.weights import WeightedCells
from bnp_models.kernels.numerics.platforms import double_precision
from bnp_models.models.cells.polettini_stander import (
    LARGEST_PHAT,
    LikelihoodData,
    PolettiniStander,
    likelihood_data,
    log_likelihood_given,
)
from bnp_models.models.options import typed_key


@dataclass(frozen=True, eq=False)
@displayed
class HyperparameterDraws:
    """Draws of the hyperparameters, by chain.

    Examples
    --------
    >>> draws = bnp.sample_hyperparameters(
    ...     bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0), num_chains=2,
    ...     num_warmup=20, num_samples=20,
    ... )
    >>> draws.log_likelihood.shape
    (2, 20)
    """

    values: dict[str, np.ndarray]
    """Draws (chains, draws) of each hyperparameter."""
    log_likelihood: np.ndarray
    """Log-likelihood (chains, draws) of the draws."""
    statistics: dict[str, np.ndarray]
    """Statistics (chains, draws) of NUTS: diverging, num_steps, acceptance_rate, energy."""
    seconds: dict[str, float]
    """Seconds of wall-clock time: "chains", for compilation, warm-up and draws."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        chains, draws = self.log_likelihood.shape
        lines = {name: spread(values) for name, values in self.values.items()}
        title = f"HyperparameterDraws: {counted(chains, 'chain')} of {counted(draws, 'draw')}"
        return Shown(title, lines | {"divergences": int(self.statistics["diverging"].sum())})


# Centre and standard deviation, on the log scale, of the priors of `sample_hyperparameters`.
PRIORS = {"alpha": (math.log(0.3), 1.5), "concentration": (math.log(80.0), 1.5)}

FRACTION_SD = 0.5


def sample_hyperparameters(
    model: PolettiniStander,
    cells: WeightedCells,
    *,
    key: jax.Array,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thin: int = 1,
    progress: bool = False,
) -> HyperparameterDraws:
    """Sample the hyperparameters by NumPyro's NUTS.

    Parameters
    ----------
    model
        Model that gives the variant and `empty_phat`; its hyperparameters are not used.
    cells
        Cells with weights.
    key
        Used once.
    num_chains, num_warmup, num_samples, thin
        Number of chains; of steps before the first draw, in which NUTS is tuned; of draws kept from
        each chain; and of steps for each kept draw.
    progress
        Whether to show NumPyro's progress bar.

    Notes
    -----
    Priors: log alpha is normal with mean log 0.3 and standard deviation 1.5; the logarithm of the
    concentration (a + b of Model I, a of Model II) has mean log 80 and standard deviation 1.5; the
    logit of Model I's mean sampling fraction a / (a + b) is normal with the logit of n / N as its
    mean and standard deviation 0.5; gamma is uniform. 95% of alpha lies from 0.016 to 5.7, of
    the concentration from 4 to 1,500.

    Examples
    --------
    >>> draws = bnp.sample_hyperparameters(
    ...     bnp.PolettiniStander(variant=1), cells, key=jax.random.key(0), num_chains=2,
    ...     num_warmup=20, num_samples=20,
    ... )
    >>> sorted(draws.values)
    ['a', 'alpha', 'b']
    """
    call = "sample_hyperparameters(model, cells, key=...)"
    check_kind(PolettiniStander, call, model=model)
    check_kind(WeightedCells, call, cells=cells)
    key = typed_key(key)
    from numpyro.infer import MCMC, NUTS, init_to_uniform

    with double_precision():
        data = likelihood_data(model, cells)
        fraction = min(cells.f.sum() / cells.population_size, LARGEST_PHAT)
        mcmc = MCMC(
            NUTS(partial(hierarchy, model.variant), init_strategy=init_to_uniform(radius=1.0)),
            num_warmup=num_warmup, num_samples=num_samples * thin, num_chains=num_chains,
            thinning=thin, chain_method="sequential", progress_bar=progress,
        )  # fmt: skip
        fields = ("diverging", "num_steps", "accept_prob", "energy")
        began = time.perf_counter()
        key = jax.random.wrap_key_data(jax.random.key_data(key))
        mcmc.run(key, data, fraction, extra_fields=fields)
        drawn = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
        extra = {k: np.asarray(v) for k, v in mcmc.get_extra_fields(group_by_chain=True).items()}
    extra["acceptance_rate"] = extra.pop("accept_prob")
    return HyperparameterDraws(
        values={name: drawn[name] for name in model.hyperparameters},
        log_likelihood=drawn["log_likelihood"],
        statistics=extra,
        seconds={"chains": time.perf_counter() - began},
    )


def hierarchy(variant: int, data: LikelihoodData, fraction: float) -> None:
    """Hyperparameters and their likelihood, as a NumPyro model.

    Parameters
    ----------
    variant
        1 or 2.
    data
        Distinct cells, from `likelihood_data`.
    fraction
        Sampling fraction n / N.
    """
    import numpyro
    from numpyro.distributions import Normal, Uniform

    z = {name: numpyro.sample(f"z_{name}", Normal(0.0, 1.0)) for name in PRIORS}
    alpha, concentration = (
        jnp.exp(centre + sd * z[name]) for name, (centre, sd) in PRIORS.items()
    )  # fmt: skip
    values = {"alpha": alpha, "a": concentration}
    if variant == 1:
        z_fraction = numpyro.sample("z_fraction", Normal(0.0, 1.0))
        share = jax.nn.sigmoid(logit(fraction) + FRACTION_SD * z_fraction)
        values |= {"a": concentration * share, "b": concentration * (1 - share)}
    for name, value in values.items():
        numpyro.deterministic(name, value)
    if variant == 2:
        values["gamma"] = numpyro.sample("gamma", Uniform(0.0, 1.0))
    log_likelihood = log_likelihood_given(variant, values, data)
    numpyro.deterministic("log_likelihood", log_likelihood)
    numpyro.factor("likelihood", log_likelihood)
