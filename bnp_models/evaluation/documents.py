"""Entries of evaluation.json."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from bnp_models.data.documents import Cells, Document, Keywords, Seconds, Sha256, Share, Warnings
from bnp_models.data.microdata import SmallCells
from bnp_models.evaluation.attack.gains import GainsEntry
from bnp_models.evaluation.attack.result import AttackEntry
from bnp_models.evaluation.closest import ClosestRecords
from bnp_models.evaluation.disclosure_measures import Disclosure, Replicated
from bnp_models.evaluation.propensity import PropensityScore, TreePropensity
from bnp_models.evaluation.proportion_estimates import ProportionsEntry
from bnp_models.evaluation.sources import Source

Ends = Annotated[tuple[float, float], Keywords(description="Lower and upper end.")]


class FileEntry(Document):
    """Synthetic file."""

    name: str
    rows: int


class PropensityEntry(Document):
    """Propensity scores: means over the files."""

    pmse: float
    """Mean squared difference of the propensity scores from the synthetic share."""
    parameters: float
    ratio: float
    """pMSE divided by its expected value if the files came from the same distribution as the
    original (Snoke et al. 2018, doi:10.1111/rssa.12358)."""
    z: float
    """(pMSE - expected) / standard deviation."""
    ratio_predictive: float
    """The same if each file has its own draw of the parameters, as files drawn from a posterior
    predictive distribution do."""
    z_predictive: float
    files: Sequence[PropensityScore]
    """Figures of each file; the entries above are their means."""


class TreesEntry(Document):
    """With --trees: records told apart by classification trees, means over the files."""

    pmse: float
    expected: float
    """Expected value, estimated by permuting which records are synthetic."""
    ratio: float
    files: Sequence[TreePropensity]
    """Figures of each file; the entries above are their means."""


class TableEntry(Document):
    """Table of some variables."""

    variables: Sequence[str]
    cells: int
    tvd: float
    """Total variation distance."""
    pmse_ratio: float


class ShareEntry(Document):
    """Households for which a statement is true."""

    name: str
    original: Share
    original_interval: Ends
    synthetic: Share
    interval: Ends
    overlap: float
    population: Share | None = None


class AnonymityEntry(Document):
    """k-anonymity of the original, and of each file."""

    original: Sequence[SmallCells]
    synthetic: Sequence[Sequence[SmallCells]]


class ImpossibleEntry(Document):
    """Impossible records or households of a file."""

    number: int
    first_rows: Sequence[int]
    """Rows of the file, counted from 0."""
    broken: Sequence[str]
    """Condition or rule that each of first_rows breaks."""
    by_rule: Mapping[str, int] | None = None


class EvaluationSummary(Document):
    """Result of an evaluation."""

    n: int
    """Records of the original."""
    files: Sequence[FileEntry]
    """Synthetic files."""
    population_size: int | None
    """Records of --population."""
    households: int | None = None
    """Number of households of the original."""
    synthetic_households: Sequence[int] | None = None
    variables: Sequence[str]
    """Key variables."""
    levels: Sequence[int]
    """Number of levels of each variable."""
    cells: Cells
    """Number of cells: the product of the numbers of levels."""
    missing: int
    """Values missing in the original."""
    seed: int | None
    version: str
    combining: Annotated[str, Keywords(enum=["partially", "fully"])]
    level: Share
    """Confidence level of the intervals."""
    proportions: Mapping[str, ProportionsEntry]
    """Figures by the number of variables in a table."""
    pmse: Mapping[str, PropensityEntry]
    """Records told apart by logistic regression on main_effects and pairs."""
    worst_tables: Mapping[str, Sequence[TableEntry]]
    """Tables that fit worst, by the number of variables in a table."""
    household_shares: Sequence[ShareEntry] | None
    """With --quantities: households for which each statement is true."""
    k_anonymity: AnonymityEntry
    replicated_uniques: Replicated
    closest_records: ClosestRecords
    disclosure: Sequence[Disclosure]
    """Results for each set of --keys."""
    pmse_trees: TreesEntry | None
    impossible: Sequence[ImpossibleEntry] | None
    """With conditions or rules: impossible records or households of each file."""
    synthetic_runs: Sequence[Source]
    """Runs that made the files."""
    attack_risk: AttackEntry | None
    attack_gains: GainsEntry | None
    """With --holdout: what the files tell about the persons of the original, but not about those of
    the holdout."""
    attack_not_assessed: str | None
    """Why the attack risk of these files cannot be assessed, if it cannot."""
    warnings: Warnings
    seconds: Seconds


class EvaluationDocument(EvaluationSummary):
    """evaluation.json of bnp-models evaluate."""

    command: str
    original_sha256: Sha256
    """Digest of the coded original."""
    synthetic_sha256: Sequence[Sha256]
