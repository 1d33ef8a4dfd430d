"""Changes of a sample before a model is fitted, as later steps need them."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from bnp_models.data.bins import Bins
from bnp_models.data.identifying import values_of_one
from bnp_models.data.label_numbers import OwnLevel
from bnp_models.data.microdata import Records
from bnp_models.data.recoding import Merged, Recoding
from bnp_models.data.respelling import with_decimal_commas
from bnp_models.data.schema import Label
from bnp_models.models.model import Model


@dataclass(frozen=True, eq=False)
class Changes:
    """Recodings of the levels of a sample, and edits of its values, before a model was fitted."""

    original: Records
    """Records, or persons, as they were read."""
    recoding: Recoding
    """Recoding of their variables."""
    decimal_commas: tuple[str, ...] = ()
    """Variables whose numbers have a decimal comma in the sample, and in files made of it."""
    edits: pd.DataFrame | None = None
    """Values of impossible records that were set free, as they were read: `row`, 0-based,
    `variable`, `value`; None if impossible records were refused."""

    @property
    def all(self) -> dict[str, Merged]:
        """Bins and merged levels by variable."""
        return {name: of for name, of in self.recoding.changed.items() if of is not None}

    @property
    def bins(self) -> dict[str, Bins]:
        """Bins of the variables that have any."""
        return {name: of for name, of in self.all.items() if isinstance(of, Bins)}

    @property
    def merged(self) -> dict[str, Merged]:
        """Levels of the variables of which some were merged."""
        return {name: of for name, of in self.all.items() if name not in self.bins}

    @property
    def dropped(self) -> list[str]:
        """Variables that were dropped."""
        return [name for name, of in self.recoding.changed.items() if of is None]

    def grouped(self, model: Model) -> Model:
        """A model whose groups are those of the levels that are left."""
        groups, levels = [], dict(zip(*self._levels, strict=True))
        for name, hierarchy in vars(model).get("groups", ()):
            if name in self.dropped:
                continue
            if name in self.merged:
                of = self.merged[name]
                members: list[list[Label]] = [[] for _ in of.labels]
                for label, code in zip(levels[name], of.code(levels[name]), strict=True):
                    members[code].append(label)
                hierarchy = hierarchy.merged(of.labels, members)
            groups.append((name, hierarchy))
        changed: dict[str, Any] = {"groups": tuple(groups)} if "groups" in vars(model) else {}
        return dataclasses.replace(model, **changed)

    def edited(self, fields: pd.DataFrame) -> "Changes":
        """These changes and edits of values: the records as they were read lose them.

        Parameters
        ----------
        fields
            The `row` and `variable` of each value.
        """
        schema, codes = self.original.schema, self.original.codes.copy()
        columns = [schema.variables.index(name) for name in fields["variable"]]
        codes[fields["row"], columns] = -1
        read = with_decimal_commas(self._read, self.decimal_commas)
        places = zip(fields["row"], fields["variable"], strict=True)
        values = [read[name].iloc[row] for row, name in places]
        edits = fields[["row", "variable"]].assign(value=pd.Series(values, dtype=object))
        return dataclasses.replace(self, original=self.original.recoded(schema, codes), edits=edits)

    @property
    def _levels(self) -> tuple[tuple[str, ...], tuple[tuple[Label, ...], ...]]:
        """Variables and levels as they were read."""
        return self.original.schema.variables, self.original.schema.levels

    def settings(self) -> dict[str, dict]:
        """Bins, merged levels and numbers of edits, for run.json."""
        bins = {name: list(of.labels) for name, of in self.bins.items()}
        own = {name: [label for label in of.labels if isinstance(label, OwnLevel)]
               for name, of in self.all.items()}  # fmt: skip
        found: dict[str, dict] = {
            "bins": bins,
            "merged": self.merged_groups,
            "own_levels": {name: labels for name, labels in own.items() if labels},
            "edited": self.num_edited,
        }
        return {k: v for k, v in found.items() if v}

    @property
    def num_edited(self) -> dict[str, Any]:
        """Numbers of records and of values that were edited, and of values by variable."""
        edits = self.edits
        if edits is None:
            return {}
        counts = edits["variable"].value_counts(sort=False)
        return {
            "records": int(edits["row"].nunique()),
            "fields": len(edits),
            "by_variable": {
                name: int(counts[name]) for name in self.original.schema.variables if name in counts
            },
        }

    @property
    def merged_groups(self) -> dict[str, dict[str, list[str]]]:
        """Labels that were merged, by the level they became, of the variables that have any."""
        found = {name: of.groups() for name, of in self.merged.items()}
        return {name: groups for name, groups in found.items() if groups}

    def as_released(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Columns of the sample's records with the values that were read where they have bins."""
        raw = self._read[[name for name in frame if name in self.bins]]
        return frame.assign(
            **{name: raw[name].where(raw[name].notna(), frame[name]) for name in raw}
        )

    @cached_property
    def _read(self) -> pd.DataFrame:
        """The records as they were read."""
        return self.original.to_frame()

    def values_of_one(self) -> dict[str, frozenset[str]]:
        """Texts of the labels that one record has, by variable."""
        found = values_of_one(self.original)
        return {name: texts for name, texts in found.items() if name not in self.dropped}
