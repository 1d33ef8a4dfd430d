"""Entries of risk.json and of run.json."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from bnp_models.data.documents import (
    ABSENT,
    AtLeastOne,
    Cells,
    Document,
    Keywords,
    NotNegative,
    Seconds,
    Sha256,
    Share,
    Warnings,
)
from bnp_models.data.microdata import SmallCells
from bnp_models.data.weight_classes import WeightsEntry
from bnp_models.evaluation.attack.gains import GainsEntry
from bnp_models.inference.convergence import Figures
from bnp_models.inference.modes import ModesEntry
from bnp_models.report.pages import Filing
from bnp_models.risk.missing_keys import MISSING_KEYS, MissingEntry
from bnp_models.risk.validation import ValidationEntry
from bnp_models.risk.verdict import VerdictEntry
from bnp_models.synthesis.predictive_checks import ChecksEntry

Diagnostics = Annotated[
    Mapping[str, Figures], Keywords(description="Convergence figures by quantity.")
]
SweepsPerSecond = Annotated[
    float,
    Keywords(
        description="Number of sweeps of all chains per second after compilation; null if there "
        "are no chains."
    ),
]


class FiguresEntry(Document):
    """Posterior mean, standard deviation and quantiles, chains together."""

    mean: float
    sd: float
    q025: float
    q05: float
    q50: float
    q95: float
    q975: float


class TausEntry(Document):
    """Figures of tau_1 and tau_2."""

    tau1: FiguresEntry
    tau2: FiguresEntry


class MisclassificationEntry(TausEntry):
    """Risk of a file some of whose values were changed at random before its release."""

    file: str | None
    """File of the probabilities; null if they were given as a table."""
    without: TausEntry
    """Figures as if no value had been changed."""


class UsableEntry(Document):
    """Whether the results can be used, and a sentence that says why."""

    tau1: bool
    """Whether tau_1 can be used."""
    why: str


class StoppingEntry(Document):
    """How the run ended, if it continued until the chains agreed."""

    reached: bool
    """Whether the target was reached."""
    max_rhat: float | None = None
    min_ess: float | None = None
    max_minutes: float
    draws: int
    """Draws that each chain made."""
    kept: int
    """Number of draws that each chain kept; these are the last ones."""
    thin: int
    """One draw is kept every so many sweeps."""


class LevelPriorEntry(Document):
    """Prior of the level probabilities."""

    kind: Annotated[str, Keywords(enum=["learned", "uniform", "fixed"])]
    shape: float | Sequence[float] | None = None
    """If the prior is fixed: its Dirichlet shape, of all levels or of each."""
    concentration: Mapping[str, float] | None = None
    """If the prior is learned: posterior mean of its concentration c_j, by variable."""


class TiesEntry(Document):
    """Correction for overdispersion: cell counts of the population may vary more than the model
    alone allows.
    """

    kind: Annotated[str, Keywords(enum=["on", "off", "sensitivity"])]
    tau1: FiguresEntry | None = None
    """With --ties sensitivity: corrected figures."""
    tau2: FiguresEntry | None = None
    probability: Share | None = None
    """Share of the draws in which there is overdispersion."""
    shape: FiguresEntry | None = None
    exponent: FiguresEntry | None = None


class LevelEntry(Document):
    """Records that have a level."""

    records: int
    sample_uniques: int
    tau1: float
    """Expected population uniques among these."""
    tau2: float
    r2: float | None = None
    """With --all-records: sum of r2 over all its records."""


class ContributionEntry(Document):
    """Contribution of a key variable to the risk."""

    share: Annotated[float, Keywords(maximum=1)] | None
    """Share of tau_1 that disappears if the variable is dropped; null if it is not known."""
    levels: Mapping[str, LevelEntry]


class BaselineEntry(Document):
    """Classical estimate."""

    name: str
    tau1: NotNegative
    """Expected population uniques among the sample uniques."""
    tau2: NotNegative


class LeftOutEntry(Document):
    """Classical estimate that was left out."""

    name: str
    why: str


class CoarserEntry(Document):
    """Coarser keys of records, or of households."""

    spec: str
    """The coarsening, as in --what-if; those of --keys begin with keep."""
    variables: Sequence[str]
    levels: Sequence[int]
    cells: Cells
    sample_uniques: int
    k_anonymity: Sequence[SmallCells]
    tau1: FiguresEntry
    tau2: FiguresEntry


class FitEntry(Document):
    """Number of cells that have a given number of records, observed and expected."""

    records: str
    """Records in a cell: a number, a range, or an open end."""
    observed: float
    """Number of such cells in the sample."""
    expected: float
    """Expected number of such cells under the model."""


class RiskDocument(Document):
    """risk.json of bnp-models risk."""

    model: str
    """Name of the model, as in --model."""
    n: int
    """Records; of the risk of households, households."""
    population_size: AtLeastOne
    """Persons in the population; of the risk of households, households."""
    variables: Sequence[str]
    """Key variables."""
    levels: Sequence[int]
    """Number of levels of each key variable."""
    cells: Cells
    """Number of cells: the product of the numbers of levels; of the risk of households, number of
    compositions of households with the sizes of the sample."""
    sample_uniques: int
    """Number of records (or households) that are alone in their cell."""
    seed: int | None
    version: str
    """Version of bnp-models."""
    device: str
    """Number and kind of the devices."""
    tau1: FiguresEntry
    """Sample uniques that are unique in the population."""
    tau1_conditional: FiguresEntry
    """Expected value of tau1 given each draw of the parameters."""
    tau2: FiguresEntry
    """Expected number of correct matches: the sum over the sample uniques of 1/F, where F is the
    number of persons of the population with the same values."""
    tau2_conditional: FiguresEntry
    """Expected value of tau2 given each draw of the parameters."""
    verdict: VerdictEntry | None = None
    diagnostics: Diagnostics
    baselines: Sequence[BaselineEntry] | None = None
    """With --baselines: classical estimates."""
    baselines_left_out: Sequence[LeftOutEntry] | None = None
    """Classical estimates that were left out, and why."""
    warnings: Warnings
    seconds: Seconds
    sweeps_per_second: SweepsPerSecond | None


class SampledRiskDocument(RiskDocument):
    """risk.json of a model that is sampled by chains, of any unit."""

    weights: WeightsEntry | None = None
    missing: MissingEntry | None = None
    """Missing values of the key variables, if there are any; sample_uniques is then a posterior
    mean, rounded, where they are read as values that are not known."""
    usable: UsableEntry
    stopping: StoppingEntry | None = None
    modes: ModesEntry
    components: float
    """Posterior mean of the number of active components."""
    level_prior: LevelPriorEntry
    p_zero: FiguresEntry | None = None
    """With conditions: probability of the impossible cells before truncation."""
    equivalences: Sequence[str] | None = None
    """With conditions: sentences that hold in every possible cell, each about several variables."""
    checks: ChecksEntry | None = None
    validation: ValidationEntry | None = None
    ties: TiesEntry
    without_ties: TausEntry | None = None
    """With --ties on: figures without the correction."""


class ChainsRiskDocument(SampledRiskDocument):
    """risk.json of a model of records that is sampled by chains."""

    misclassification: MisclassificationEntry | None = None
    """With --misclassification: tau1 and tau2 of this document, which count a record only if its
    values are its own, beside those as if no value had been changed."""
    contributions: Mapping[str, ContributionEntry]
    """Contributions to the risk, by key variable."""
    what_if: Sequence[CoarserEntry] | None = None
    """Coarser keys, from the same draws."""


class HouseholdsEntry(Document):
    """Risk of the households of a sample."""

    n: int
    """Households."""
    population_size: AtLeastOne
    """Households in the population."""
    sample_uniques: int
    """Households whose composition no other household of the sample has."""
    tau1: FiguresEntry
    """Sample uniques that are unique in the population."""
    tau2: FiguresEntry
    """Sum over the sample uniques of 1/F, where F is the number of households of the population
    with the same composition."""
    hierarchical: NotNegative | None
    """Sum over the households of sdcMicro's hierarchical risk, 1 - prod (1 - r2) over the persons;
    null if the persons' own risk is not known."""


class PersonsEntry(Document):
    """Risk of the persons of the households of a sample."""

    n: int
    """Persons."""
    population_size: AtLeastOne
    """Persons in the population: its households times the persons of a household of the sample."""
    sample_uniques: int
    """Persons whose values no other person of the sample has."""
    tau1: FiguresEntry | None
    """Sample uniques that are unique in the population by their own values; null if rules give no
    closed form for it."""
    tau2: FiguresEntry | None
    """Expected number of correct matches by the persons' own values."""
    found: NotNegative
    """Expected number of persons who are found alone or through their household."""


class HouseholdRiskDocument(SampledRiskDocument):
    """risk.json of the risk of households, whose figures are those of households."""

    households: HouseholdsEntry
    persons: PersonsEntry
    what_if: Sequence[CoarserEntry] | None = None
    """Coarser keys, from the same draws."""
    rules_in_words: Sequence[str] | None = None


class CellsRiskDocument(RiskDocument):
    """risk.json of a model of cells."""

    non_empty_cells: int
    """Models of cells: number of cells that have records."""
    hyperparameters: Annotated[
        Mapping[str, float | Sequence[Any] | FiguresEntry],
        Keywords(
            properties={"method": {"enum": ["fixed", "empirical-bayes", "full-bayes"]}},
            required=["method"],
        ),
    ]
    """Models of cells: how the hyperparameters were found (method), and their values, or posterior
    figures if they were sampled."""
    log_likelihood: float
    """Models of cells: mean over the draws."""
    fit: Sequence[FitEntry]
    """Models of cells: numbers of cells by their number of records."""
    modes: ModesEntry | None = None


class RunSummary(Document):
    """Summary of a run that makes data."""

    model: str
    n: int
    """Records of the sample."""
    households: int | None = None
    household_sizes: Mapping[str, int] | None = None
    """Number of households of each size."""
    household_level: Sequence[str] | None = None
    """Variables of households."""
    household_head: Sequence[str] | None = ABSENT
    """Variable and label of the head, where its values are at household level."""
    active_member_components: float | None = None
    weights: WeightsEntry | None = None
    variables: Sequence[str]
    """Key variables."""
    levels: Sequence[int]
    """Number of levels of each variable."""
    cells: Cells
    missing: int
    """Values missing in the sample."""
    seed: int | None
    version: str
    device: str
    diagnostics: Diagnostics
    stopping: StoppingEntry | None = None
    modes: ModesEntry
    active_components: float
    """Posterior mean of the number of active components."""
    level_prior: LevelPriorEntry
    checks: ChecksEntry | None = None
    augmented: float | None = ABSENT
    """Mean number of impossible records or households that were drawn."""
    rules_in_words: Sequence[str] | None = None
    num_conditions: int | None = None
    impossible_cells: NotNegative | None = None
    p_zero: FiguresEntry | None = None
    """Probability of an impossible record or household before truncation."""
    equivalences: Sequence[str] | None = None
    warnings: Warnings
    seconds: Seconds
    sweeps_per_second: SweepsPerSecond | None


class EditsEntry(Document):
    """Values of impossible records that impute --edit set free."""

    records: int
    """Records that were impossible."""
    fields: int
    """Values that were set free."""
    by_variable: Mapping[str, int]
    """Values that were set free, by variable."""


class RunDocument(Document):
    """run.json of bnp-models risk, synthesize, impute, protect and compare."""

    command: str
    """The command line."""
    version: str
    """Version of bnp-models."""
    jax_version: str
    sample_sha256: Sha256
    """Digest of the coded sample."""
    conditions_sha256: Sha256 | None
    """Digest of the conditions or rules; null if there are none."""
    chains: int
    warmup: int
    """Sweeps of each chain before draws are kept."""
    draws: int
    """Number of draws kept from each chain."""
    thin: int
    seed: int
    weights_sha256: Sha256 | None = None
    model: str | None = None
    """Name of the model, as in --model."""
    models: Sequence[str] | None = None
    """Names of the models that compare was given, as in --models."""
    parts: int | None = None
    """Option of compare."""
    folds: int | None = None
    """Option of compare."""
    population_size: AtLeastOne | None = ABSENT
    until_rhat: float | None = ABSENT
    until_ess: float | None = ABSENT
    max_minutes: float | None = ABSENT
    keep_parameters: bool | None = None
    no_records: bool | None = None
    components: int | None = ABSENT
    """The largest number of classes or profiles; a setting of the model."""
    member_components: int | None = ABSENT
    concentration: str | None = ABSENT
    augmentation: str | None = ABSENT
    not_applicable: bool | None = ABSENT
    ordered: Sequence[str] | None = ABSENT
    groups: Mapping[str, str] | None = ABSENT
    """Files of the groups of levels, by variable."""
    relative: Sequence[str | Sequence[str | Sequence[str | int | float] | None]] | None = ABSENT
    """Variables that are modelled relative to the head's value, with kinds and relationships."""
    prior_possible: int | None = ABSENT
    member_classes: str | None = ABSENT
    sizes: str | None = ABSENT
    alpha: float | None = ABSENT
    level_shape: float | None = ABSENT
    a: float | None = ABSENT
    b: float | None = ABSENT
    gamma: float | None = ABSENT
    empty_phat: Sequence[Sequence[float]] | None = ABSENT
    hyperparameters: str | None = ABSENT
    baselines: bool | None = None
    all_records: bool | None = None
    suda: int | None = ABSENT
    """Option of risk: variables of a minimal sample unique, at the most."""
    missing_keys: Annotated[str, Keywords(enum=list(MISSING_KEYS))] | None = None
    """Option of risk, if values are missing: how they are read."""
    misclassification: str | None = None
    """Option of risk: file of the probabilities with which values were changed."""
    misclassification_sha256: Sha256 | None = None
    """Digest of this file."""
    household: str | None = ABSENT
    household_variables: Sequence[str] | None = ABSENT
    rules: str | None = ABSENT
    roles: str | None = ABSENT
    head: str | None = ABSENT
    weights: str | WeightsEntry | None = ABSENT
    """Column of the design weights; of data sets, what the weights are."""
    bins: Mapping[str, Sequence[str | float]] | None = None
    """Labels of the bins, by variable."""
    merged: Mapping[str, Mapping[str, Sequence[str]]] | None = None
    """Levels that were merged, by variable and new level."""
    own_levels: Mapping[str, Sequence[str]] | None = None
    """Values that are levels of their own, apart from the numbers, by variable."""
    edited: EditsEntry | None = None
    """Option of impute: impossible records that were edited."""
    validate: int | None = ABSENT
    """Option of risk: number of parts of the sample."""
    ties: Annotated[str, Keywords(enum=["on", "off", "sensitivity"])] | None = None
    coarsenings: Sequence[str] | None = None
    """Option of risk: coarser keys whose risk is estimated."""
    max_tau1: float | None = ABSENT
    max_risk: Share | None = ABSENT
    id: str | None = ABSENT
    title: str | None = ABSENT
    author: str | None = ABSENT
    bom: bool | None = None
    first_row: int | None = None
    recode: Sequence[str] | None = None
    """Option of protect."""
    suppress: Share | None = None
    k: Sequence[Sequence[int | Sequence[str] | None]] | None = ABSENT
    """Option of protect: of each target, K, the number of variables, and variables."""
    strata: str | None = ABSENT
    no_merge: Sequence[str] = ABSENT
    link: Sequence[Sequence[str]] | None = ABSENT
    """Option of protect: pairs of a column and the key variable that it is changed with."""
    importance: Mapping[str, float] | None = None
    refit: bool | None = None
    datasets: int | None = None
    """Number of data sets that synthesize or impute made."""
    rows: int | None = None
    method: Annotated[str, Keywords(enum=["predictive", "balanced", "calibrated"])] | None = None
    keep: Sequence[str] | None = ABSENT
    carry: Sequence[str] | None = ABSENT
    given: Sequence[str] | None = ABSENT
    """Option of synthesize: values that all records have."""
    keep_missing: bool | None = ABSENT
    attack: Annotated[str, Keywords(enum=["auto", "yes", "no"])] | None = None
    """Option of synthesize: whether the files are attacked."""
    format: Annotated[str, Keywords(enum=["csv", "parquet", "dta", "sav"])] | None = None
    filing: Filing | None = None
    usable: UsableEntry | None = None
    verdict: VerdictEntry | None = None
    files_sha256: Mapping[str, Sha256 | None] | None = None
    """Digest of each data set as it was written; null for a folder."""
    values_of_one_person: Mapping[str, Share] | None = None
    """For each variable, the share of its synthetic values that only one person of the sample
    has."""
    attack_gains: GainsEntry | None = None
    """What the files tell about persons because they are in the sample, where this was
    estimated."""
    cells: Cells | None = ABSENT
    """Number of cells: the product of the numbers of levels; for models of cells, --cells."""
    level_prior: LevelPriorEntry | None = ABSENT
