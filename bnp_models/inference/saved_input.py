"""Model, sample and conditions of a run as JSON values and arrays, without pickle."""

from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.hierarchies import Hierarchy
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.household_weights import WeightedHouseholds
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Schema
from bnp_models.data.weight_classes import WeightedMicrodata
from bnp_models.models.latent_classes.nplcm import NPLCM, TNPLCM
from bnp_models.models.mixed_membership.fixed_profiles import MixedMembership
from bnp_models.models.mixed_membership.hdp import HDPMixedMembership
from bnp_models.models.nested.ndpmpm import NDPMPM
from bnp_models.rules.rules import Rules
from bnp_models.rules.yaml_reading import rules_of_yaml
from bnp_models.rules.yaml_writing import rules_to_yaml
from bnp_models.zeros.structural_zeros import StructuralZeros

_PLAIN = (type(None), bool, int, float, str)

_CLASSES = {
    kind.__name__: kind
    for kind in (
        HDPMixedMembership, MixedMembership, NPLCM, TNPLCM, NDPMPM, Schema, HouseholdSchema,
        Hierarchy, Microdata, WeightedMicrodata, ContingencyTable, Households, WeightedHouseholds,
        StructuralZeros,
    )
}  # fmt: skip
"""Classes whose objects are written field by field, by name."""

Arrays = dict[str, np.ndarray]
"""Arrays by the names that stand for them in JSON values."""


class NotWritableError(ValueError):
    """A value has no form as JSON and arrays; the message says which value."""


def as_json(value: Any, arrays: Arrays, prefix: str) -> Any:
    """Return a value as JSON, and add its arrays, under names that begin with the prefix.

    Raises
    ------
    NotWritableError
        If a part of the value is of a class that `from_json` does not make.
    """
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return [as_json(one, arrays, prefix) for one in value]
    if isinstance(value, Rules):
        try:
            return {"yaml": rules_to_yaml(value)}
        except ValueError as error:
            raise NotWritableError(str(error)) from None
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"objects": as_json(tuple(value.tolist()), arrays, prefix)}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        name = f"{prefix}{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"jax" if isinstance(value, jax.Array) else "array": name}
    kind = type(value)
    if _CLASSES.get(kind.__name__) is not kind:
        raise NotWritableError(f"objects of the class {kind.__qualname__} cannot be written")
    entries = {
        field.name: as_json(getattr(value, field.name), arrays, prefix) for field in fields(value)
    }
    return {"class": kind.__name__, "fields": entries}


def from_json(entry: Any, arrays: Arrays) -> Any:
    """Return the value that `as_json` has written."""
    match entry:
        case list():
            return tuple(from_json(one, arrays) for one in entry)
        case {"yaml": text}:
            return rules_of_yaml(text)
        case {"objects": values}:
            objects = np.empty(len(values), dtype=object)
            objects[:] = from_json(values, arrays)
            return objects
        case {"array": name}:
            # A NumPy scalar was written as an array without axes.
            return arrays[name][()]
        case {"jax": name}:
            return jnp.asarray(arrays[name])
        case {"class": name, "fields": values}:
            made = {field: from_json(value, arrays) for field, value in values.items()}
            return _CLASSES[name](**made)
    return entry
