"""Protected files: the log of their changes as JSON values, and one self-contained HTML page."""

from collections.abc import Sequence
from os import PathLike

import pandas as pd

from bnp_models.data.documents import ABSENT, AtLeastOne, Document, NotNegative, Share
from bnp_models.data.microdata import SmallCells
from bnp_models.data.schema import text_of
from bnp_models.data.writing import write_text
from bnp_models.inference.diagnosis import Diagnosis
from bnp_models.report.documents import FiguresEntry
from bnp_models.report.pages import Filing, render_page
from bnp_models.report.plots import TRACED
from bnp_models.report.summaries import figures_of
from bnp_models.risk.anonymity import Reached
from bnp_models.risk.households import HouseholdRisk
from bnp_models.risk.population import PopulationRisk
from bnp_models.risk.protection import FileRisk, Protection
from bnp_models.risk.released import ReadBack, Released, ReleasedColumn
from bnp_models.risk.verdict import VerdictEntry

_SHOWN = 100


class FileRiskEntry(Document):
    """Risk of a file, and the information that it has lost."""

    sample_uniques: int
    tau1: FiguresEntry
    """Sample uniques that are unique in the population."""
    tau2: FiguresEntry
    largest_risk: Share
    """Largest probability of a record to be unique in the population."""
    k_anonymity: Sequence[SmallCells]
    loss: NotNegative
    """Information lost, in bits per record."""


class RecodingEntry(Document):
    """Recoding of a variable."""

    variable: str
    levels: Sequence[str]
    """Levels that were merged; empty if the variable was dropped."""
    to: str | None
    """Label of the merged level; null if the variable was dropped."""
    loss: float
    """Information lost, in bits per record."""


class LevelEntry(Document):
    """What became of a level."""

    variable: str
    level: str
    becomes: str | None
    """Level of the protected file; null if the variable was dropped."""


class ReleasedEntry(Document):
    """The file as it is released, and what can be read back from it."""

    columns: Sequence[ReleasedColumn]
    """Its columns."""
    sample_uniques: int
    """Records that no other shares all its columns with; with --household, households."""
    suppressed_told: int
    """Suppressed values that no other key variable tells, but another column does."""
    suppressed_told_by_keys: int
    """Suppressed values that another key variable tells."""
    merged_told: int
    """Merged or dropped values of records that no other key variable tells, but another column
    does."""
    read_back: Sequence[ReadBack]
    """Columns that tell of changes, or nearly determine a variable that was changed."""


class SuppressionEntry(Document):
    """Suppressed value."""

    row: int
    """Row of the file, counted from 0."""
    id: str | None = None
    """Identifier of the record, from the column of --id."""
    column: str
    old: str
    """Label before the suppression."""


class ChangesDocument(Document):
    """changes.json of bnp-models protect."""

    n: int
    """Records; with --household, households."""
    household: str | None = ABSENT
    """With --household: column of the households. All numbers of records are then of households,
    except rows, and values that are suppressed, merged or told."""
    persons: int | None = ABSENT
    """With --household: persons of the sample."""
    population_size: AtLeastOne
    variables: Sequence[str]
    """Key variables of the sample."""
    verdict: VerdictEntry
    anonymity: Sequence[Reached] | None = ABSENT
    """With --k: targets of k-anonymity."""
    before: FileRiskEntry
    after: FileRiskEntry
    refitted: FileRiskEntry | None = None
    """With --refit: the risk of the protected file, estimated by new chains."""
    recodings: Sequence[RecodingEntry]
    """Recodings, in the order in which they were made."""
    levels: Sequence[LevelEntry] = ABSENT
    """What became of each level of the variables that were recoded."""
    released: ReleasedEntry = ABSENT
    """The file that is written, with its columns that are no key variables."""
    suppressed: dict[str, int]
    """Number of suppressed values, by variable; with --household, of persons' values."""
    suppressed_records: int
    suppressions: Sequence[SuppressionEntry]


def changes_document(
    protection: Protection,
    refitted: FileRisk | None = None,
    *,
    ids: pd.Series | None = None,
    usable: bool = True,
    why: str = "",
    released: Released | None = None,
    household: str | None = None,
) -> ChangesDocument:
    """Content of ``changes.json``: every recoding and suppression, the risk before and after.

    Parameters
    ----------
    protection
        Result of `protect`.
    refitted
        Risk of the protected file by chains on the recoded sample, where there are any.
    ids
        (n,) identifiers of the records, which the log then names them by too.
    usable, why
        Whether the model allows a verdict (`allows_verdict`), and a sentence that says why not.
    released
        Result of `Protection.released`: the verdict is then that on the file that is released.
    household
        Column of the households, if their risk is protected.
    """
    table = protection.table
    names = {} if ids is None else dict(enumerate(map(text_of, ids.to_numpy(object))))
    number = protection.suppressed_values.sum(axis=0).tolist()
    kept = protection.coarsening.schema.variables
    verdict = protection.judge(usable, why)
    return ChangesDocument(
        n=len(protection.suppressed),
        household=household or ABSENT,
        persons=ABSENT if household is None else table.n,
        population_size=protection.population_size,
        variables=table.schema.variables,
        verdict=(verdict if released is None else released.judge(verdict)).document(),
        anonymity=protection.anonymity or ABSENT,
        before=_of_file(protection.before),
        after=_of_file(protection.after),
        refitted=None if refitted is None else _of_file(refitted),
        recodings=[RecodingEntry.of(one, to=one.label) for one in protection.recodings],
        levels=_levels(protection),
        released=ABSENT if released is None else ReleasedEntry.of(released),
        suppressed=dict(zip(kept, number, strict=True)),
        suppressed_records=protection.suppressed.any(axis=1).sum(),
        suppressions=[
            SuppressionEntry.of(one, id=names.get(one.row))
            for one in protection.suppressions().itertuples()
        ],
    )


def _levels(protection: Protection) -> list[LevelEntry]:
    """What became of each level of the variables that were recoded."""
    schema = protection.table.schema
    found = []
    for name, one in protection.coarsening.changed.items():
        labels = schema.levels[schema.variables.index(name)]
        became = [None] * len(labels) if one is None else [one.labels[k] for k in one.code(labels)]
        found += [
            LevelEntry(variable=name, level=text_of(x), becomes=None if y is None else text_of(y))
            for x, y in zip(labels, became, strict=True)
        ]
    return found


def _of_file(risk: FileRisk) -> FileRiskEntry:
    """Entry of a file."""
    return FileRiskEntry.of(
        risk, tau1=figures_of(risk.tau1), tau2=figures_of(risk.tau2), largest_risk=risk.r1.max(),
        k_anonymity=risk.anonymity,
    )  # fmt: skip


def render_protection_report(
    risk: PopulationRisk | HouseholdRisk,
    changes: dict,
    *,
    summary: dict,
    diagnosis: Diagnosis,
    command: str | None = None,
    records: bool = True,
    filing: Filing | None = None,
) -> str:
    """Report of a protected file.

    Parameters
    ----------
    risk
        Result of `population_risk`, or of `household_risk`, on the sample.
    changes
        Result of `changes_document`.
    summary
        Result of `risk_summary`, or of `household_risk_summary`, on the sample.
    diagnosis
        Diagnosis of the run and the risk.
    command
        The command line, where there was one.
    records
        Whether the page may show single records.
    filing
        What the page is filed by.

    Returns
    -------
    html
        One self-contained page.
    """
    return render_page(
        "protection.html.j2",
        risk.law,
        {name: diagnosis.draws[name] for name in TRACED},
        s=summary | {"verdict": changes["verdict"]},
        c=changes,
        active=summary["components"],
        command=command,
        records=records,
        unit="record" if "household" not in changes else "household",
        filing=filing,
        mapping=_mapping(changes["levels"]),
        shown=[list(one.values()) for one in changes["suppressions"][:_SHOWN]],
    )


def _mapping(levels: Sequence[dict]) -> list[tuple[str, str | None, list[str]]]:
    """Variables, new levels (None: dropped) and the old ones, where several became one."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for one in levels:
        found.setdefault((one["variable"], one["becomes"]), []).append(one["level"])
    return [(*new, old) for new, old in found.items() if new[1] is None or len(old) > 1]


def write_protection_report(
    path: str | PathLike, risk: PopulationRisk | HouseholdRisk, changes: dict, **options
) -> None:
    """Write the page of `render_protection_report`, which takes the same options."""
    write_text(render_protection_report(risk, changes, **options), path)
