"""Draws of a run for an attack, from memory or from a file, and a check that the sample fits."""

import json
from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bnp_models.data.display import Shown, displayed, shapes
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.data.weight_classes import require_unweighted
from bnp_models.inference.arviz import origin
from bnp_models.inference.run import Run, spaced_positions
from bnp_models.models.latent_classes.nplcm import NPLCM, TNPLCM
from bnp_models.models.model import Model
from bnp_models.models.nested.ndpmpm import NDPMPM
from bnp_models.models.nested.state import NESTED
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

# Models whose likelihood an attack can compute, and the arrays of a draw that it needs.
_READ: dict[type[Model], tuple[str, ...]] = {
    NPLCM: NPLCM.parameters,
    TNPLCM: TNPLCM.parameters,
    NDPMPM: NESTED,
}
_MODELS = {model.name: model for model in _READ}


class NoAttack(MicrodataError):
    """The attack is not for synthetic files of this kind."""


@displayed
class Posterior(NamedTuple):
    """Draws of a run, from memory or from its ``posterior.nc``.

    Examples
    --------
    >>> bnp.io.write_netcdf(bnp.to_inference_data(run, parameters=True), "posterior.nc")
    >>> posterior = bnp.io.read_posterior("posterior.nc")
    >>> posterior.model
    'nplcm'
    """

    model: str
    """Name of the model."""
    parameters: dict[str, np.ndarray]
    """Arrays (chains, draws, ...) by name."""
    attributes: dict
    """Attributes of the file, such as "sample_sha256", "conditions_sha256" and the model's
    "options" in JSON."""

    def _shown(self) -> Shown:
        """Title, figures and rows for the display as text or in a notebook."""
        return Shown(f"Posterior: draws of {self.model}", {"arrays": shapes(self.parameters)})


Source: TypeAlias = Run | Posterior | str | PathLike
"""Draws for an attack: a run, a result of `read_posterior`, or the path of a ``posterior.nc``."""


def can_attack(model: Model) -> bool:
    """Whether the attack knows the likelihood of the files of a model."""
    return isinstance(model, tuple(_READ))


def read_posterior(path: str | PathLike) -> Posterior:
    """Read the parameters that ``bnp-models synthesize`` put into ``posterior.nc``.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    MicrodataError
        If the file cannot be read or was written by an older version, or the attack is not for its
        synthetic files: those of other models, and files that were not drawn at random, keep
        columns of the sample, or were made with design weights.

    Examples
    --------
    >>> bnp.io.write_netcdf(bnp.to_inference_data(run, parameters=True), "posterior.nc")
    >>> bnp.io.read_posterior("posterior.nc").parameters["log_pi"].shape
    (2, 20, 4)
    """
    arrays, attributes = _read_groups(path)
    name = attributes.get("model")
    if name not in _MODELS:
        error = NoAttack if "method" in attributes else MicrodataError
        raise error(
            f"has draws of the model {name!r}; the attack risk can be computed only for "
            f"{', '.join(_MODELS)}",
            file=path,
        )
    method = attributes.get("method", "predictive")
    if method == "keep":
        raise NoAttack(
            "its synthetic files keep columns of the sample, and the attack is only for completely "
            "synthetic files",
            file=path,
        )
    if method != "predictive":
        raise NoAttack(
            f"its synthetic files were made by --method {method}, and the attack is only for files "
            "that were drawn at random, by --for inference (--method predictive)",
            file=path,
        )
    if "weighted" in attributes:
        raise NoAttack(
            "its synthetic files were made with design weights, and the attack assumes a simple "
            "random sample",
            file=path,
        )
    names = _READ[_MODELS[name]]
    missing = [key for key in names if key not in arrays]
    if missing:
        raise MicrodataError(
            f"has no {missing[0]!r}, so that it was not written by synthesize; run "
            "synthesize again",
            file=path,
        )
    if "sample_sha256" not in attributes:
        raise MicrodataError(
            "does not identify its sample, because an older version wrote it; run synthesize again",
            file=path,
        )
    if "relative" in attributes or "levels" in attributes:
        raise MicrodataError(
            "lacks options of the model, because an older version wrote it; run synthesize again",
            file=path,
        )
    return Posterior(name, {key: arrays[key] for key in names}, attributes)


def _read_groups(path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and attributes of a ``posterior.nc``; scalars are those of draws with arrays."""
    import xarray as xr

    arrays: dict[str, np.ndarray] = {}
    attributes: dict[str, Any] = {}
    kept = np.zeros(0, int)
    for group in ("posterior", "parameters"):
        try:
            with xr.open_dataset(path, group=group, engine="h5netcdf") as data:
                attributes = attributes or {str(name): x for name, x in data.attrs.items()}
                kept = np.asarray(data["draw"])
                arrays |= {str(name): np.asarray(data[name]) for name in data.data_vars}
        except FileNotFoundError:
            raise MicrodataError("cannot be read (there is no such file)", file=path) from None
        except (OSError, ValueError, KeyError) as error:
            if group == "posterior":
                raise MicrodataError(
                    f"cannot be read as the posterior of a run ({error}); give the posterior.nc "
                    "that synthesize wrote",
                    file=path,
                ) from None
    number = len(kept)
    return {k: x if x.shape[1] == number else x[:, kept] for k, x in arrays.items()}, attributes


def model_of(posterior: Posterior) -> NPLCM | TNPLCM | NDPMPM:
    """Make the model of these draws; options that the draws do not name have their defaults.

    Parameters
    ----------
    posterior
        Draws of a latent class model or of `NDPMPM`, such as `check_source` returns.

    Raises
    ------
    MicrodataError
        If the options are those of another version.

    Examples
    --------
    >>> posterior, _ = bnp.evaluation.check_source(run, table, None)
    >>> bnp.evaluation.model_of(posterior).components
    4
    """
    kind: Any = _MODELS[posterior.model]
    options = {"components": posterior.parameters["log_pi"].shape[-1]}
    if kind is NDPMPM:
        options["member_components"] = posterior.parameters["log_omega"].shape[-1]
        # Files of versions in which nested classes were the default do not say so.
        shared = posterior.parameters["log_phi"].shape[-2] == 1
        options["member_classes"] = "shared" if shared else "nested"
    try:
        return kind(**options | _options(posterior))
    except (TypeError, ValueError) as error:
        raise MicrodataError(
            f"the model has options of another version ({error}); run synthesize again"
        ) from None


def _options(posterior: Posterior) -> dict[str, Any]:
    """Options of the model of these draws, at least those that differ from the defaults."""
    return json.loads(posterior.attributes.get("options", "{}"))


def check_source(
    source: Source, table: Microdata | Households, conditions: StructuralZeros | Rules | None
) -> tuple[Posterior, StructuralZeros | Rules | None]:
    """Check that draws belong to this sample and these conditions.

    Parameters
    ----------
    source, table, conditions
        As for `attack_risk`.

    Returns
    -------
    posterior
        The draws.
    conditions
        The given conditions, or those of a `Run`.

    Raises
    ------
    MicrodataError
        If the draws belong to another sample or to other conditions.

    Examples
    --------
    >>> posterior, conditions = bnp.evaluation.check_source(run, table, None)
    >>> posterior.model, conditions
    ('nplcm', None)
    """
    path = source if isinstance(source, str | PathLike) else None
    if isinstance(source, Run):
        conditions = source.conditions if conditions is None else conditions
        posterior = _posterior_of(source)
    else:
        posterior = source if isinstance(source, Posterior) else read_posterior(source)
    table_type = _MODELS[posterior.model].table_type
    if not isinstance(table, table_type):
        kinds = {Microdata: "records", Households: "persons within households"}
        raise MicrodataError(
            f"the posterior is of the {posterior.model} model, for {kinds[table_type]}, but the "
            f"sample has {kinds[type(table)]}",
            file=path,
        )
    if _options(posterior).get("sizes") == "given":
        raise MicrodataError(
            "the posterior is of households of given sizes, for which there is no attack; leave it "
            "out",
            file=path,
        )
    if posterior.attributes["sample_sha256"] != table.digest:
        raise MicrodataError(
            "the posterior is not of this sample: records, variables or levels, or their order, "
            "differ; give what synthesize was given",
            file=path,
        )
    given = "" if conditions is None else conditions.digest
    if posterior.attributes["conditions_sha256"] != given:
        raise MicrodataError(
            "the posterior was sampled under other conditions or rules than those given; give what "
            "synthesize was given",
            file=path,
        )
    return posterior, conditions


def _posterior_of(run: Run) -> Posterior:
    """Draws and attributes of a run, the same as in its file."""
    require_unweighted(run.table, "the attack risk")
    name = run.model.name
    if name not in _MODELS:
        raise MicrodataError(
            f"the attack risk can be computed only for {', '.join(_MODELS)}, not for {name}"
        )
    kept = run.parameters()
    return Posterior(name, {key: kept[key] for key in _READ[_MODELS[name]]}, origin(run))


def choose_draws(
    posteriors: Sequence[Posterior], used: Sequence[int], max_draws: int
) -> list[dict[str, np.ndarray]]:
    """Choose the same number of draws from each chain of each posterior, without those of files.

    Parameters
    ----------
    posteriors
        Posteriors of the run and of the refits.
    used
        Number of synthetic files made from the draws of each posterior.
    max_draws
        Approximate largest number of draws of each posterior; they are evenly spaced.

    Returns
    -------
    draws
        Parameters of each posterior at its draws, chain after chain.

    Raises
    ------
    ValueError
        If the numbers of chains differ.
    MicrodataError
        If too few draws are left.
    """
    shapes = [posterior.parameters["log_pi"].shape[:2] for posterior in posteriors]
    num_chains = shapes[0][0]
    if any(shape[0] != num_chains for shape in shapes):
        raise ValueError("the refits must have as many chains as the run")
    unused = [
        _unused_positions(num_chains, num_draws, number)
        for (_, num_draws), number in zip(shapes, used, strict=True)
    ]
    least = min(len(positions) for chains in unused for positions in chains)
    number = min(max(max_draws // num_chains, 1), least)
    if number * num_chains < 2:
        raise MicrodataError(
            f"{num_chains * min(shape[1] for shape in shapes)} kept draws are too few, because the "
            f"{used[0]} draws of the files cannot be used; run synthesize with more --draws"
        )
    chain = np.arange(num_chains)[:, None]
    chosen = []
    for posterior, chains in zip(posteriors, unused, strict=True):
        draw = np.array(
            [
                positions[np.linspace(0, len(positions) - 1, number).round().astype(int)]
                for positions in chains
            ]
        )
        chosen.append(
            {
                name: value[chain, draw].reshape(-1, *value.shape[2:])
                for name, value in posterior.parameters.items()
            }
        )
    return chosen


def _unused_positions(num_chains, num_draws, number) -> list[np.ndarray]:
    """Draws of each chain from which none of `number` files was made."""
    used = set(spaced_positions(num_chains, num_draws, number)) if number else set()
    return [
        np.array([d for d in range(num_draws) if (chain, d) not in used], int)
        for chain in range(num_chains)
    ]
