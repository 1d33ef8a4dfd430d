"""Commands as frozen objects of their options."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from bnp_models.cli.argument_types import (
    anonymity_type,
    importance_type,
    integer_type,
    name_list,
    number_above,
    share_type,
    two_variables,
)
from bnp_models.cli.models import CELL_MODELS, MODELS_OF
from bnp_models.cli.options import Command, option, part, switch
from bnp_models.cli.parts import (
    DRAWS,
    FIXED_ALPHA,
    MANY,
    POPULATION,
    STOPPING,
    TABLE,
    Chains,
    Data,
    Filing,
    Fit,
    HouseholdColumns,
    Limits,
    Names,
    Output,
    Processes,
    Recoding,
    Text,
)
from bnp_models.data.writing import FORMATS

if TYPE_CHECKING:
    from bnp_models.data.source import Source

_FIRST = (
    "out", "population_size", "variables", "levels", "conditions", "weights", "model", "draws",
    "seed", "resume",
)  # fmt: skip


def _fit(command: str, without: Names, **changed: Any) -> Fit:
    """Models of a command, and their options."""
    models = MODELS_OF[command]
    model: dict[str, Any] = {
        "choices": models, "default": models[0], "help": f"model to fit (default: {models[0]})"
    }  # fmt: skip
    if command in ("risk", "protect"):
        # The default depends on --household.
        model |= {
            "default": None,
            "help": f"model to fit (default: {models[0]}, or ndpmpm with --household)",
        }
    if CELL_MODELS.keys() & models:
        changed["alpha"] = (
            f"{FIXED_ALPHA}; for polettini-stander, shape parameter of the cell means (default "
            "with --hyperparameters fixed: 0.92 in model 1 and 0.1 in model 2, as in the paper)"
        )
    fit: Fit = part(Fit, without=without, model=model, **changed)
    return fit


class OfPopulation(Command):
    """Command about a sample of a population, whose size is an option."""

    population_size: int | None

    @property
    def size(self) -> int:
        """Number of persons in the population, or of households; once it is known."""
        assert self.population_size is not None
        return self.population_size


@dataclass(frozen=True, kw_only=True)
class Risk(OfPopulation):
    """``bnp-models risk``."""

    name: ClassVar = "risk"
    first: ClassVar = (*_FIRST, "max_tau1")
    heading: ClassVar = "estimates"
    help: ClassVar = "estimate how many sample uniques are population uniques"
    description: ClassVar = (
        "Estimate the disclosure risk of a sample of categorical microdata: how many of its unique "
        "records are unique in the population, and which. With --household, the same of the "
        "households of a file of persons, whose members an intruder may all know."
    )
    epilog: ClassVar = (
        "Writes risk.json, records.csv (or cells.csv), posterior.nc, report.html, run.json and "
        "run.toml to DIR; with --household also households.csv."
    )

    population_size: int | None = option("N", integer_type(1, 2**53), help=
        f"{POPULATION}; with --household, number of households")  # fmt: skip
    validate: int | None = option("SPLITS", integer_type(1, 101), nargs="?", const=3, help=
        "also fit the model to this many random quarters of the sample, and compare each estimate "
        "with the true number in the whole sample; each quarter takes at most as long as the main "
        "run (default without a number: 3)")  # fmt: skip
    ties: str = option(choices=("on", "sensitivity", "off"), default="on", help=
        "whether the risk is corrected for overdispersion, which means that the cell counts of the "
        "population vary more than the model alone allows. on: tau_1, tau_2 and the risks of "
        "records are corrected; sensitivity: they are not corrected, and the corrected results are "
        "shown beside them; off: nothing is corrected (default: on)")  # fmt: skip
    what_if: Names = option("SPEC", **MANY, help=
        "also estimate the risk of coarser key variables, from the same draws. Each SPEC is "
        "drop:A,B (leave these variables out), keep:A,B (leave all others out), merge:A=X+Y (merge "
        "these levels), group:A or group:A=2 (replace levels by their --groups, or by the second, "
        "larger groups), or several of these joined by semicolons. Names and labels that contain a "
        "comma or semicolon are written in double quotes. The risk without each single variable is "
        "always estimated if there are at most 30 variables")  # fmt: skip
    keys: tuple[Names, ...] = option("A,B,..", name_list, action="append", default=(), help=
        "a set of key variables for which the risk is estimated too. The option may be given "
        "several times. The model is fitted to --variables (default: all variables that are in one "
        "of these sets)")  # fmt: skip
    all_records: bool = switch(
        "write all records to records.csv, and not only the sample uniques. Column f is the number "
        "of records with the same values. If f is not 1, r1 is 0; r2 is the expected value of 1/F "
        "for every record, where F is the number of persons of the population with these "
        "values")  # fmt: skip
    suda: int | None = option("M", integer_type(1, 100), nargs="?", const=99, help=
        "add two columns to records.csv: suda, the SUDA score of each record from its minimal "
        "sample uniques of up to M variables, and dis_suda, the DIS-SUDA score for a sampling "
        "fraction of 0.01 (default without a number: all variables, as suda2 does)")  # fmt: skip
    missing_keys: str | None = option(choices=("random", "wildcard"), help=
        "meaning of missing values of key variables. random: every record has a value, which is "
        "not known; the risk is that of the sample with all values, averaged over the values that "
        "may be missing. wildcard: the values were suppressed, and each matches every value; a "
        "record is unique if no other record agrees with it on the variables of which both have a "
        "value. Use wildcard for files that protect has written (default: random)")  # fmt: skip
    misclassification: "Source | None" = option("FILE", help=
        "file of the probabilities with which values were changed at random before SAMPLE was "
        "released, as by PRAM or swapping, with the columns variable, true, released and "
        "probability: the probability that the true level is released as the other. Those of each "
        "true level sum to 1; a level without rows is never changed. All figures, and the verdict, "
        "then count a record only if its values are its own. If several columns were swapped "
        "together, give only one of them (docs/reading.md)")  # fmt: skip
    baselines: bool = switch(
        "also compute classical estimates of the risk, which takes a few seconds: that of "
        "Benedetti and Franconi, and those of Poisson log-linear models with main effects, with "
        "all two-way interactions, and with selected two-way interactions. A model of cells also "
        "writes them to cells.csv")  # fmt: skip
    limits: Limits = part(Limits)
    data: Data = part(Data, fixed={"takes_id": True, "takes_weights": True})
    # The risk of households needs the sizes of those of the population.
    fit: Fit = _fit("risk", ("sizes",))
    chains: Chains = part(Chains)
    processes: Processes = part(Processes)
    output: Output = part(Output)
    filing: Filing = part(Filing)
    format: str = option(choices=("csv", "parquet"), default="csv", heading="output", help=
        "format of the table of records or cells (default: csv)")  # fmt: skip
    bom: bool = option(default=False, action="store_true", heading="output", help=
        "begin records.csv or cells.csv with a byte order mark, so that Excel reads it as "
        "UTF-8")  # fmt: skip
    first_row: int = option("K", integer_type(0, 2), default=0, heading="output", help=
        "number of the first record of SAMPLE in the column row of records.csv and on the page, 0 "
        "or 1 (default: 0)")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Data sets that a command makes."""

    heading: ClassVar = "data sets"

    format: str = option(choices=FORMATS, default="csv", help=
        "format of the files: csv, parquet, dta (Stata) or sav (SPSS). dta and sav files have the "
        "value labels of SAMPLE if it has any. If the format does not allow a column name, the "
        "name is changed, and the full name becomes the label of the column (default: "
        "csv)")  # fmt: skip
    datasets: int = option("M", integer_type(1, 10**6), default=5, help=
        "number of data sets (default: 5)")  # fmt: skip
    for_: str | None = option(dest="for_", choices=("tables", "inference"), help=
        "purpose of the files. tables: the tables of one and two variables are close to those of "
        "the sample (--method calibrated, or balanced if values are missing). inference: analysts "
        "compute estimates with standard errors from all files together (--method predictive) "
        "(default: tables; inference for households, and with --keep or --given, for which there "
        "is no other method)")  # fmt: skip
    method: str | None = option(
        choices=("predictive", "balanced", "calibrated"), help=
        "predictive: each file is drawn from the posterior predictive distribution, with its own "
        "draw of the parameters. balanced: the files follow the mean of many draws, and groups of "
        "similar combinations have nearly the expected number of records. calibrated: like "
        "balanced, and the one- and two-way tables are brought close to those of the sample. "
        "Balanced files are closer to the sample than predictive ones, and calibrated files are "
        "closest; more unique combinations of the sample then occur in them (default: the method "
        "that --for chooses)")  # fmt: skip
    keep: Names = option("A,B,..", name_list, default=(), help=
        "for nplcm and tnplcm: every record of the sample keeps its values of these columns, and "
        "the values of the other columns are drawn given them (partially synthetic "
        "files)")  # fmt: skip
    carry: Names = option("A,B,..", name_list, default=(), help=
        "with --keep: more columns that are copied from the sample but not modelled. They are "
        "refused if they reveal to whom the records belong")  # fmt: skip
    rows: int | None = option("N", integer_type(1, 2**31), help=
        "number of records in each data set (default: as many as the sample has)")  # fmt: skip
    given: Names = option("A=X", **MANY, help=
        "make only records with this value; their other values are drawn given it. Several values "
        "may be given, of one variable or of several. Not for households, nor with "
        "--not-applicable")  # fmt: skip
    from_: str | None = option("DIR", dest="from_", help=
        "folder of a finished run of synthesize: its draws are used, and no chains are run. SAMPLE "
        "and the options of that run are used again; only options for the data sets, such as "
        "--datasets, --method and --format, may differ")  # fmt: skip
    attack: str = option(choices=("auto", "yes", "no"), default="auto", help=
        "estimate what an intruder learns about persons because they are in the sample: chains and "
        "files are made again without a fifth of the records, and values of these persons are "
        "guessed from both. auto: only for 500 to 5,000 single records (default: "
        "auto)")  # fmt: skip
    keep_missing: bool = switch(
        "also synthesize the missing values: each variable with missing values has a level for "
        "them, which is written as an empty cell. Where another column determines which values are "
        "missing, it does so in the synthetic files too (default: synthetic files have no missing "
        "values)")  # fmt: skip

    @property
    def chosen_method(self) -> str:
        """Method by which synthetic files are made, after the command has chosen it."""
        assert self.method is not None
        return self.method


_USED = "columns to model and to write (default: all columns)"


@dataclass(frozen=True, kw_only=True)
class Synthesize(Command):
    """``bnp-models synthesize``."""

    name: ClassVar = "synthesize"
    first: ClassVar = (*_FIRST, "datasets", "rows", "for_", "format")
    help: ClassVar = "make completely synthetic data sets"
    description: ClassVar = (
        "Make synthetic data sets with the columns and labels of a sample of categorical "
        "microdata. The sample may have missing values; the synthetic data have none, unless "
        "--keep-missing is given. No synthetic record is in a structural zero."
    )
    epilog: ClassVar = (
        "Writes synthetic_1.csv and so on, run.json, run.toml, posterior.nc and report.html to "
        "DIR. Only the synthetic files are meant for release."
    )

    made: Datasets = part(Datasets)
    data: Data = part(Data, without=("id",), fixed={"takes_weights": True}, variables=_USED)
    fit: Fit = _fit("synthesize", ("cells",))
    chains: Chains = part(Chains)
    processes: Processes = part(Processes)
    # The evaluation of what an intruder can learn reads the parameters.
    output: Output = part(Output, fixed={"keep_parameters": True})

    @property
    def calibrated(self) -> bool:
        """Whether tables of the files are calibrated to those of the sample."""
        return self.made.chosen_method == "calibrated"


@dataclass(frozen=True, kw_only=True)
class Impute(Command):
    """``bnp-models impute``."""

    name: ClassVar = "impute"
    first: ClassVar = (*_FIRST, "edit", "datasets", "format")
    heading: ClassVar = "data sets"
    help: ClassVar = "complete the missing values of a sample, several times"
    description: ClassVar = (
        "Complete the missing values (empty cells) of a sample of categorical microdata several "
        "times. The differences between the completed data sets show how uncertain the missing "
        "values are. No completed record is in a structural zero."
    )
    epilog: ClassVar = (
        "Writes imputed_1.csv and so on, run.json, run.toml, posterior.nc and report.html to DIR; "
        "with --edit also edits.csv."
    )

    edit: bool = switch(
        "with --conditions: correct the impossible records, which are refused otherwise. The "
        "fewest values of each that must change for it to be possible are imputed like missing "
        "ones, and edits.csv lists them. Among several smallest sets of values, one is chosen at "
        "random by --seed. Not for households")  # fmt: skip
    made: Datasets = part(
        Datasets, only=("format", "datasets"),
        datasets="number of data sets, each from a different draw of the parameters (default: 5)",
    )  # fmt: skip
    data: Data = part(
        Data, without=("id", "weights"), fixed={"takes_weights": False}, variables=_USED
    )
    fit: Fit = _fit(
        "impute", ("concentration", "augmentation", "not_applicable", "cells"),
        components="number of latent classes (default: 50); with ndpmpm, of classes of households "
        "(default: 40)",
    )  # fmt: skip
    chains: Chains = part(Chains)
    processes: Processes = part(Processes)
    output: Output = part(Output)


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Measures of the files."""

    heading: ClassVar = "measures"

    keys: tuple[Names, ...] = option("A,B,..", name_list, action="append", default=(), help=
        "variables that an intruder may know. The command then counts replicated uniques, and "
        "measures what the files disclose about the other variables (DiSCO). The option may be "
        "given several times")  # fmt: skip
    targets: Names | None = option("A,B,..", name_list, help=
        "variables that the intruder would like to know (default: all variables that are not in "
        "--keys)")  # fmt: skip
    trees: bool = switch(
        "also try to tell synthetic records from original ones by classification trees, which find "
        "interactions of any order (needs scikit-learn)")  # fmt: skip
    combining: str = option(choices=("partially", "fully"), default="partially", help=
        "rule for combining the estimates from the files. partially: for partially synthetic "
        "files, and also right for the files of synthesize; fully: for fully synthetic files of "
        "other software (default: partially)")  # fmt: skip
    seed: int = option("K", integer_type(0, 2**32), default=0, help=
        "seed of the random choice of tables, if there are too many to compare all (default: "
        "0)")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Relations(HouseholdColumns):
    """Options for files of persons within households that are evaluated."""

    heading: ClassVar = "persons within households, one person a row"
    about: ClassVar = ""

    rules: str | None = option("RULES", help=
        "rules that every household obeys, as for synthesize: census-relationships, a YAML file "
        "(safe), or a Python file, which is run as code. The command counts the households that "
        "break a rule")  # fmt: skip
    quantities: str | None = option("RULES", help=
        "file of statements about households, in YAML or Python like that of --rules. The command "
        "compares how often each statement is true")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Options for attack risks: the knowledge that an intruder can gain."""

    heading: ClassVar = "attack risk"
    about: ClassVar = "what an intruder who knows all records but one can learn about that record"

    posterior: str | None = option("FILE", help=
        "posterior.nc of the run of synthesize that wrote the files; the data options must be the "
        "same as for that run")  # fmt: skip
    refit: bool = switch(
        "run the chains again with each file added to ORIGINAL. This is far more precise, and "
        "takes as long as synthesize for each file")  # fmt: skip
    target: str | None = option(choices=("household", "person"), help=
        "for persons within households: whether the intruder guesses a value of a household or of "
        "a person (default: household)")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """``bnp-models evaluate``."""

    name: ClassVar = "evaluate"
    first: ClassVar = (
        "out", "variables", "levels", "missing", "conditions", "household", "household_variables",
        "rules", "posterior", "keys", "seed",
    )  # fmt: skip
    heading: ClassVar = "data"
    help: ClassVar = "compare synthetic data sets with their original"
    description: ClassVar = (
        "Compare synthetic data sets with their original: the proportions in all tables of one, "
        "two and three variables with the overlap of their intervals, whether synthetic records "
        "can be told from original ones (pMSE), which tables fit worst, and how many unique "
        "combinations of the original occur again. A table counts only the records that have "
        "values of all its variables."
    )
    epilog: ClassVar = (
        "Writes evaluation.json, run.toml and report.html to DIR, and records.csv with --posterior."
    )

    original: "Source" = option("ORIGINAL", positional=True, help=TABLE)
    synthetic: "tuple[Source, ...]" = option("SYNTHETIC", nargs="+", positional=True, help=
        "files with the columns and labels of ORIGINAL")  # fmt: skip
    variables: Names | None = option("A,B,..", name_list, help=
        "variables to compare (default: all columns of ORIGINAL)")  # fmt: skip
    drop: Names = option("A,B,..", name_list, default=(), help=
        "columns of ORIGINAL to leave out; all others are compared (default: none)")  # fmt: skip
    levels: "Source | None" = option("FILE", help=
        "file that declares the levels, with the columns variable and level (default: the levels "
        "that occur in ORIGINAL; other labels are refused)")  # fmt: skip
    recoding: Recoding = part(Recoding)
    changes: str | None = option("FILE", help=
        "changes.json of protect, if SYNTHETIC is its protected.csv: ORIGINAL is recoded in the "
        "same way, so that only the effect of the suppressed values is measured")  # fmt: skip
    text: Text = part(
        Text,
        sep="character between the cells of ORIGINAL, --population and --holdout, such as ';' or "
        "'\\t' (default: detected)",
        encoding="encoding of ORIGINAL, --population and --holdout, such as cp1252 (default: "
        "detected)",
        skip="lines of a text file, or rows of a sheet, above the header of ORIGINAL, --population "
        "and --holdout, such as a title (default: 0)",
        sheet="sheet of a workbook that is read of ORIGINAL, --population and --holdout, by its "
        "name or by its number, counted from 1 (default: the first)",
    )
    conditions: "Source | None" = option("FILE", help=
        "file of structural zeros, as for synthesize. The command counts the records that are "
        "impossible")  # fmt: skip
    settles: tuple[tuple[str, str], ...] = option("A=B", two_variables, **MANY, help=
        "variable A determines variable B in ORIGINAL, as for synthesize")  # fmt: skip
    population: "Source | None" = option("FILE", help=
        "file of the whole population, if it is known. Its proportions are then compared "
        "too")  # fmt: skip
    holdout: "Source | None" = option("FILE", help=
        "file with records of the population that were not used to make the synthetic files. The "
        "command then tests whether synthetic records are closer to ORIGINAL than to these "
        "records")  # fmt: skip
    measures: Measures = part(Measures)
    households: Relations = part(Relations)
    attack: Attack = part(Attack)
    output: Output = part(Output, without=("keep_parameters",))

    @property
    def data(self) -> Data:
        """Options for reading the original."""
        return Data(
            sample=self.original, variables=self.variables, drop=self.drop, levels=self.levels,
            allow_identifying=True, recoding=self.recoding, conditions=self.conditions,
            settles=self.settles, text=self.text,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """``bnp-models compare``."""

    name: ClassVar = "compare"
    first: ClassVar = (*_FIRST, "models")
    heading: ClassVar = "comparison"
    help: ClassVar = "compare how well several models fit a sample"
    description: ClassVar = (
        "Compare models of a sample of categorical microdata: how well each model predicts records "
        "that were held out, whether data that it simulates look like the sample, and what "
        "disclosure risk it estimates."
    )
    epilog: ClassVar = (
        "Writes compare.json, run.json, run.toml and report.html to DIR. For each model, chains "
        "are run on the whole sample and, for each part that is held out, on the other parts."
    )

    models: Names = option("M,M,..", name_list, default=("hdp", "nplcm"), help=
        f"models to compare, from {', '.join(MODELS_OF['compare'])}; each may have options, as in "
        "hdp:level-prior=uniform or nplcm:components=20:ordered=age+income "
        "(default: hdp,nplcm)")  # fmt: skip
    population_size: int | None = option("N", integer_type(1, 2**53), help=
        "number of persons in the population. If it is given, the risk is compared "
        "too")  # fmt: skip
    parts: int = option("K", integer_type(2, 2**31), default=5, help=
        "number of random parts that the sample is divided into (default: 5)")  # fmt: skip
    folds: int = option("F", integer_type(1, 2**31), default=1, help=
        "number of parts that are held out, one at a time; as many as --parts is a full "
        "cross-validation (default: 1)")  # fmt: skip
    data: Data = part(
        Data, without=("keep_recoding", "id", "weights"), fixed={"takes_weights": False}
    )
    fit: Fit = part(Fit, only=("groups",))
    chains: Chains = part(
        Chains, without=STOPPING[:2],
        draws={"default": DRAWS, "help": 
            f"number of draws kept from each chain (default: {DRAWS})"},
        max_minutes="stop after this many minutes of chains, even if they have not made all draws. "
        "Each run of chains has an equal share of the minutes that are left. Compilation and the "
        "minutes before a --resume count too; a compilation that has begun is finished first "
        "(default: no limit)",
    )  # fmt: skip
    output: Output = part(Output, without=("keep_parameters",))


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Changes that may be made to the records, and the loss of information that they cause."""

    heading: ClassVar = "protection"

    recode: Names = option("SPEC", **MANY, help=
        "recodings that are made before the search for others: drop:A,B and merge:A=X+Y, as for "
        "--what-if of risk")  # fmt: skip
    k: tuple[tuple[int, int | None, Names | None], ...] = option("K", anonymity_type, **MANY, help=
        "k-anonymity: every combination of the key variables must have at least K records. M=K "
        "asks this of every set of M key variables, and A,B=K of A and B together. A record with "
        "suppressed values is counted with all records that had its other values before any value "
        "was suppressed")  # fmt: skip
    strata: str | None = option("A", help=
        "column that is not a key variable. --k must then be met within each of its values, and "
        "the column is written to protected.csv as it is")  # fmt: skip
    carry: Names = option("A,B,..", name_list, default=(), help=
        "columns that are no key variables, and are written to protected.csv as they are; all "
        "others are left out. The verdict is no if they tell what was suppressed or "
        "merged")  # fmt: skip
    link: tuple[tuple[str, str], ...] = option("A=B", two_variables, **MANY, help=
        "column A, which is no key variable, says the same as key variable B, as codes of "
        "education do beside its labels: it is written, and suppressed and merged together "
        "with B")  # fmt: skip
    suppress: float = option("SHARE", share_type, default=0.05, help=
        "largest share of the records in which values may be suppressed. Variables are recoded "
        "until this share is enough. 0: only recode; 1: recode nothing beyond --recode, if "
        "suppression alone can meet the limits (default: 0.05)")  # fmt: skip
    no_merge: Names = option("A,B,..", name_list, default=(), help=
        "variables whose levels are not merged beyond --recode; they may still be dropped. Without "
        "an order of the levels (numbers, or --ordered with --levels) or --groups, any levels of a "
        "variable may be merged")  # fmt: skip
    importance: tuple[tuple[str, float], ...] = option("A=W", importance_type, **MANY, help=
        "weight of the information that is lost in a variable: with A=2, each bit lost in A counts "
        "as two bits (default: 1 for each variable)")  # fmt: skip
    refit: bool = switch(
        "run new chains on the recoded sample, and also estimate the risk of the protected file "
        "from them; this takes as long again as the first chains")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Protect(OfPopulation):
    """``bnp-models protect``."""

    name: ClassVar = "protect"
    first: ClassVar = (
        *(name for name in _FIRST if name != "weights"), "max_tau1", "max_risk", "k", "suppress",
    )  # fmt: skip
    heading: ClassVar = "protection"
    help: ClassVar = "recode and suppress values until the risk of a sample is within limits"
    description: ClassVar = (
        "Protect a sample of categorical microdata: merge levels and drop variables, and then "
        "suppress values of single records, until the estimated risk is within the limits, or "
        "until k-anonymity is reached. A greedy search keeps the loss of information small. With "
        "--household, the limits are about households, and a variable is suppressed in all persons "
        "of a household."
    )
    epilog: ClassVar = (
        "Writes protected.csv, changes.json, run.json, run.toml and report.html to DIR. Only "
        "protected.csv is meant for release; it has the key variables, and the columns of --carry, "
        "--link and --strata; with --household also the column of households, which are numbered "
        "anew."
    )

    population_size: int | None = option("N", integer_type(1, 2**53), help=
        f"{POPULATION}; with --household, number of households")  # fmt: skip
    limits: Limits = part(Limits)
    protection: Protection = part(Protection)
    data: Data = part(Data, fixed={"takes_id": True, "takes_weights": True})
    # The risk of households needs the sizes of those of the population.
    fit: Fit = _fit("protect", ("sizes", "cells"))
    chains: Chains = part(Chains)
    processes: Processes = part(Processes)
    output: Output = part(Output, fixed={"keep_parameters": True})
    filing: Filing = part(Filing)


def _data(without: Names, **changed: Any) -> Any:
    """Options for reading a sample whose conditions are suggested or checked."""
    return part(
        Data, without=("keep_recoding", *without), fixed={"allow_identifying": True},
        variables="variables to use (default: all columns)",
        levels="file that declares the levels, with the columns variable and level (default: the "
        "levels that occur in SAMPLE)", **changed,
    )  # fmt: skip


def _file() -> Any:
    """The one file that is written."""
    return part(
        Output, only=("out", "force", "quiet"),
        out={"metavar": "FILE", "help": "CSV or Parquet file to write"},
        force="replace FILE if it exists",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Suggest(Command):
    """``bnp-models conditions suggest``."""

    name: ClassVar = "conditions"
    first: ClassVar = ("least", "out", "variables", "levels", "force", "quiet")
    description: ClassVar = (
        "write candidates for structural zeros, with their expected numbers of records, to a file "
        "for --conditions; the other commands refuse this file until a person has confirmed each "
        "candidate"
    )

    least: float = option("E", number_above(0), default=5.0, help=
        "suggest combinations that do not occur, although at least this many records would be "
        "expected to have them by chance, and of which chance alone would make fewer than 0.05 in "
        "a file (default: 5)")  # fmt: skip
    data: Data = _data(("id", "weights", "conditions", "settles"))
    output: Output = _file()


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """``bnp-models conditions check``."""

    name: ClassVar = "conditions"
    first: ClassVar = ("conditions", "out", "possible", "variables", "levels", "force", "quiet")
    heading: ClassVar = "output"
    description: ClassVar = (
        "write the impossible records of a sample, and the structural zeros that make them "
        "impossible, to a file"
    )

    possible: str | None = option("FILE", help=
        "also write SAMPLE without the impossible records, with all its columns, to this CSV, "
        "Parquet, Stata or SPSS file")  # fmt: skip
    data: Data = _data(
        ("id", "weights", "settles"),
        conditions={"required": True, "help": "file of structural zeros"},
    )
    output: Output = _file()


Sampling: TypeAlias = Risk | Protect | Synthesize | Impute
"""Commands that sample one model."""

COMMANDS: tuple[type[Command], ...] = (Risk, Synthesize, Impute, Evaluate, Compare, Protect)
"""Commands whose options a file may hold."""

ACTIONS: dict[str, type[Command]] = {"suggest": Suggest, "check": Check}
"""Actions of the command ``conditions``."""
