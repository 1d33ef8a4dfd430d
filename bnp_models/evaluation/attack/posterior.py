"""The parameters of a run, as kept or as read from its files, and whether they are of a sample."""

import json
from os import PathLike
from typing import NamedTuple

import numpy as np

from bnp_models.data.households import Households
from bnp_models.data.schema import MicrodataError
from bnp_models.inference.arviz import origin
from bnp_models.inference.run import Run
from bnp_models.models.latent_classes.nplcm import NPLCM, TNPLCM
from bnp_models.models.nested.ndpmpm import NDPMPM
from bnp_models.models.nested.state import NESTED

_PARAMETERS = {model.name: model.parameters for model in (NPLCM, TNPLCM)} | {NDPMPM.name: NESTED}


class Posterior(NamedTuple):
    """The draws of a run, as kept or as read from its ``posterior.nc``."""

    model: str
    """Name of the model."""
    parameters: dict[str, np.ndarray]
    """Each (chains, draws, ...)."""
    attributes: dict
    """Of the file; "sample_sha256" and "conditions_sha256" among them, and the model's "options" in
    JSON."""


def read_posterior(path: str | PathLike) -> Posterior:
    """Read the parameters that ``bnp-models synthesize`` put into ``posterior.nc``.

    Raises
    ------
    MicrodataError
        If the file cannot be read, or holds no parameters of a latent class or nested model.
    """
    import xarray as xr

    found, attributes, kept = {}, {}, None
    for group in ("posterior", "parameters"):
        try:
            with xr.open_dataset(path, group=group, engine="h5netcdf") as data:
                attributes = attributes or dict(data.attrs)
                kept = np.asarray(data["draw"])
                found |= {name: np.asarray(data[name]) for name in data.data_vars}
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError) as error:
            if group == "posterior":
                raise MicrodataError(
                    f"cannot be read as the posterior of a run ({error}); give the posterior.nc "
                    "that synthesize wrote",
                    file=path,
                ) from None
    # Arrays may be kept of fewer draws than scalars: these are the ones.
    number = len(kept)
    found = {k: x if x.shape[1] == number else x[:, kept] for k, x in found.items()}
    name = attributes.get("model")
    if name not in _PARAMETERS:
        raise MicrodataError(
            f"is of the model {name!r}; attack risks are those of synthetic files of "
            f"{', '.join(_PARAMETERS)}",
            file=path,
        )
    missing = [key for key in _PARAMETERS[name] if key not in found]
    if missing:
        raise MicrodataError(
            f"holds no {missing[0]!r}, so it is not of synthesize; run that again", file=path
        )
    if "sample_sha256" not in attributes:
        raise MicrodataError(
            "does not say of which sample it is: an older version wrote it; run synthesize again",
            file=path,
        )
    if "relative" in attributes or "levels" in attributes:
        raise MicrodataError(
            "does not say all options of the model: an older version wrote it; run synthesize "
            "again",
            file=path,
        )
    return Posterior(name, {key: found[key] for key in _PARAMETERS[name]}, attributes)


def model_of(posterior: Posterior) -> NPLCM | TNPLCM | NDPMPM:
    """The model of draws, with its options; those that are not said are the defaults.

    Raises
    ------
    MicrodataError
        If another version had other options.
    """
    kind = {model.name: model for model in (NPLCM, TNPLCM, NDPMPM)}[posterior.model]
    options = {"components": posterior.parameters["log_pi"].shape[-1]}
    if kind is NDPMPM:
        options["member_components"] = posterior.parameters["log_omega"].shape[-1]
    try:
        return kind(**options | json.loads(posterior.attributes.get("options", "{}")))
    except (TypeError, ValueError) as error:
        raise MicrodataError(
            f"the options of the model are not those of this version ({error}); run synthesize "
            "again"
        ) from None


def check_source(source, table, conditions):
    """Check that draws are of this sample and these conditions.

    Arguments as for `attack_risk`.

    Returns
    -------
    posterior
        What `read_posterior` would return.
    conditions
        Those given, or those of a `Run`.

    Raises
    ------
    MicrodataError
        If they are not.
    """
    where = source if isinstance(source, str | PathLike) else None
    if isinstance(source, Run):
        if source.model.name not in _PARAMETERS:
            raise MicrodataError(
                f"attack risks are those of synthetic files of {', '.join(_PARAMETERS)}, not of "
                f"{source.model.name}"
            )
        conditions = source.conditions if conditions is None else conditions
        kept = source.parameters()
        posterior = Posterior(
            source.model.name,
            {name: kept[name] for name in _PARAMETERS[source.model.name]},
            origin(source),
        )
    else:
        posterior = read_posterior(source) if where is not None else source
    nested = posterior.model == NDPMPM.name
    if nested != isinstance(table, Households):
        kinds = ("records", "persons within households")
        raise MicrodataError(
            f"the posterior is of the {posterior.model} model, for {kinds[nested]}, and the sample "
            f"is coded as {kinds[not nested]}",
            file=where,
        )
    if posterior.attributes["sample_sha256"] != table.digest:
        raise MicrodataError(
            "the posterior is not of this sample: records, variables or levels, or their order, "
            "differ; give what synthesize was given",
            file=where,
        )
    given = "" if conditions is None else conditions.digest
    if posterior.attributes["conditions_sha256"] != given:
        raise MicrodataError(
            "the posterior was sampled under other conditions or rules than those given; give what "
            "synthesize was given",
            file=where,
        )
    return posterior, conditions
