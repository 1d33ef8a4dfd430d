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
    model = {"choices": models, "default": models[0], "help": f"(default: {models[0]})"}
    # What is recorded of a command without households.
    fixed = {"head": None} if "households" in without else {}
    if CELL_MODELS.keys() & models:
        changed["alpha"] = (
            f"{FIXED_ALPHA}; with polettini-stander, shape parameter of the cell means (default "
            "with --hyperparameters fixed, as in the paper: 0.92 in model 1, 0.1 in model 2)"
        )
    fit: Fit = part(Fit, without=without, fixed=fixed, model=model, **changed)
    return fit


@dataclass(frozen=True, kw_only=True)
class Risk(Command):
    """``bnp-models risk``."""

    name: ClassVar = "risk"
    first: ClassVar = (*_FIRST, "max_tau1")
    heading: ClassVar = "estimates"
    help: ClassVar = "estimate how many sample uniques are unique in the population"
    description: ClassVar = (
        "Estimate the disclosure risk of a sample of categorical microdata: how many of its unique "
        "records are unique in the population, and which."
    )
    epilog: ClassVar = (
        "Writes risk.json, records.csv (or cells.csv), posterior.nc and report.html to DIR."
    )

    population_size: int = option("N", integer_type(1, 2**53), required=True, help=POPULATION)
    validate: int | None = option("SPLITS", integer_type(1, 101), nargs="?", const=3, help=
        "also fit the model to this many random quarters of the sample, and compare each estimate "
        "with the truth in the whole sample; each quarter takes at most as long as the main run "
        "(default without a number: 3)")  # fmt: skip
    ties: str = option(choices=("on", "sensitivity", "off"), default="on", help=
        "whether a second layer, the layer for ties, lets the cell counts of the population vary "
        "more than the model alone allows (overdispersion). on: tau_1, tau_2 and the risks of "
        "records use this layer; sensitivity: they are computed without it, and the results with "
        "it are shown beside them; off: it is not used (default: on)")  # fmt: skip
    what_if: Names = option("SPEC", **MANY, help=
        "also estimate the risk of coarser key variables, from the same draws. Each SPEC is "
        "drop:A,B (leave these variables out), keep:A,B (leave all others out), merge:A=X+Y (merge "
        "these levels), group:A or group:A=2 (replace levels by their --groups, or by the second "
        "layer of groups), or several of these joined by semicolons. Names and labels that hold a "
        "comma or semicolon are written in double quotes. The risk without each single variable is "
        "always estimated, of up to 30 variables")  # fmt: skip
    keys: tuple[Names, ...] = option("A,B,..", name_list, action="append", default=(), help=
        "a set of key variables for which the risk is estimated too; may be given more than once. "
        "The model is fitted to --variables (default: all variables that are in one "
        "of these sets)")  # fmt: skip
    all_records: bool = switch(
        "write all records to records.csv, and not only the sample uniques, with the number f of "
        "records that have the same values. If f is not 1, r1 is 0; r2 is the expected value of "
        "1/F for every record, where F is the number of persons of the population with these "
        "values")  # fmt: skip
    suda: int | None = option("M", integer_type(1, 100), nargs="?", const=99, help=
        "add two columns to records.csv: suda, the SUDA score of each record by its minimal sample "
        "uniques of up to M variables, and dis_suda, the DIS-SUDA score for a sampling fraction of "
        "0.01 (default without a number: all variables, as suda2 does)")  # fmt: skip
    missing_keys: str | None = option(choices=("random", "wildcard"), help=
        "how missing values of key variables are read. random: every record has a value, which is "
        "not known; the risk is that of the sample with all values, averaged over what they may "
        "be. wildcard: the values were suppressed, and each matches every value; a record is "
        "unique if no other record agrees with it where both have values. protect writes files of "
        "the second kind (default: random)")  # fmt: skip
    baselines: bool = switch(
        "also compute classical estimates, which takes a few seconds: the risk of Benedetti and "
        "Franconi, and Poisson log-linear models with main effects, with all two-way interactions, "
        "and with selected two-way interactions; cells.csv then has their risks too")  # fmt: skip
    limits: Limits = part(Limits)
    data: Data = part(Data, fixed={"takes_id": True, "takes_weights": True})
    fit: Fit = _fit("risk", ("households",))
    chains: Chains = part(Chains)
    processes: Processes = part(Processes)
    output: Output = part(Output)
    filing: Filing = part(Filing)
    format: str = option(choices=("csv", "parquet"), default="csv", heading="output", help=
        "format of the table of records or cells (default: csv)")  # fmt: skip
    bom: bool = option(default=False, action="store_true", heading="output", help=
        "begin records.csv or cells.csv with a byte order mark, so that Excel "
        "recognises UTF-8")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Data sets that a command makes."""

    heading: ClassVar = "data sets"

    format: str = option(choices=FORMATS, default="csv", help=
        "format of the files: csv, parquet, dta (Stata) or sav (SPSS). dta and sav files have the "
        "value labels of SAMPLE if it has any; a column name that the format does not allow is "
        "changed, and the full name becomes the label of the column (default: csv)")  # fmt: skip
    datasets: int = option("M", integer_type(1, 10**6), default=5, help=
        "number of data sets (default: 5)")  # fmt: skip
    for_: str | None = option(dest="for_", choices=("tables", "inference"), help=
        "what the files are for. tables: those of one and two variables are close to the sample's "
        "(--method calibrated, or balanced if values are missing). inference: estimates with "
        "standard errors from all files together (--method predictive)")  # fmt: skip
    method: str | None = option(
        choices=("predictive", "balanced", "calibrated"), help=
        "predictive: each file is drawn from the posterior predictive distribution, with its own "
        "draw of the parameters. balanced: the files follow the mean of many draws, and groups of "
        "similar combinations have nearly the expected number of records. calibrated: like "
        "balanced, and the one- and two-way tables are brought close to those of the sample. In "
        "this order, files are closer to the sample, and more of its unique combinations occur in "
        "them (default: predictive, or as --for says)")  # fmt: skip
    keep: Names = option("A,B,..", name_list, default=(), help=
        "for nplcm and tnplcm: every record of the sample keeps its values of these columns, and "
        "the other columns are drawn given them (partially synthetic files)")  # fmt: skip
    carry: Names = option("A,B,..", name_list, default=(), help=
        "with --keep: more columns that are copied but not modelled; refused if they reveal whose "
        "records these are")  # fmt: skip
    rows: int | None = option("N", integer_type(1, 2**31), help=
        "number of records in each data set (default: as many as the sample has)")  # fmt: skip
    given: Names = option("A=X", **MANY, help=
        "make records with this value only; the others are drawn given it. Of one variable several "
        "values may be given, and of several variables values (models of records without "
        "--not-applicable)")  # fmt: skip
    from_: str | None = option("DIR", dest="from_", help=
        "folder of a finished run of synthesize: its draws are used, and no chains are run. SAMPLE "
        "and all other options are those of that run, but for the data sets that are "
        "made")  # fmt: skip
    keep_missing: bool = switch(
        "synthetic files have missing values where the sample would: each variable with missing "
        "values has a level for them, which is written as an empty cell; values that another "
        "column settles are tied to it, as by --empty-as-level (default: synthetic files have no "
        "missing values)")  # fmt: skip

    @property
    def chosen_method(self) -> str:
        """Method that was given, or that fits what the files are for; else the default."""
        return self.method or "predictive"


_USED = "variables to use and to write (default: all columns)"


@dataclass(frozen=True, kw_only=True)
class Synthesize(Command):
    """``bnp-models synthesize``."""

    name: ClassVar = "synthesize"
    first: ClassVar = (*_FIRST, "datasets", "rows", "for_", "format")
    help: ClassVar = "make completely synthetic data sets"
    description: ClassVar = (
        "Make synthetic data sets with the columns and labels of a sample of categorical "
        "microdata. The sample may have missing values; the synthetic data have none without "
        "--keep-missing, and no synthetic record is in a structural zero."
    )
    epilog: ClassVar = (
        "Writes synthetic_1.csv and so on, run.json, posterior.nc and report.html to DIR. Only the "
        "synthetic files are meant for release."
    )

    made: Datasets = part(Datasets)
    data: Data = part(Data, without=("id",), fixed={"takes_weights": True}, variables=_USED)
    fit: Fit = _fit("synthesize", ("cells",))
    chains: Chains = part(Chains)
    processes: Processes = part(Processes)
    # The evaluation of what an intruder can learn reads the parameters.
    output: Output = part(Output, fixed={"keep_parameters": True})


@dataclass(frozen=True, kw_only=True)
class Impute(Command):
    """``bnp-models impute``."""

    name: ClassVar = "impute"
    first: ClassVar = (*_FIRST, "datasets", "format")
    help: ClassVar = "complete missing values, several times"
    description: ClassVar = (
        "Complete the missing values (empty cells) of a sample of categorical microdata several "
        "times. The differences between the completed data sets show the uncertainty. No completed "
        "record is in a structural zero."
    )
    epilog: ClassVar = (
        "Writes imputed_1.csv and so on, run.json, posterior.nc and report.html to DIR."
    )

    made: Datasets = part(
        Datasets, only=("format", "datasets"),
        datasets="number of data sets, each from a different draw of the parameters (default: 5)",
    )  # fmt: skip
    data: Data = part(Data, without=("id", "weights"), variables=_USED)
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
        "variables that an intruder may know; the command then counts replicated uniques, and "
        "measures what the files disclose about the other variables (DiSCO); may be given more "
        "than once")  # fmt: skip
    targets: Names | None = option("A,B,..", name_list, help=
        "variables that the intruder would like to know (default: all variables that "
        "are not keys)")  # fmt: skip
    trees: bool = switch(
        "also tell records apart by classification trees, which find interactions of any order "
        "(needs scikit-learn)")  # fmt: skip
    combining: str = option(choices=("partially", "fully"), default="partially", help=
        "rule for combining the estimates from the files: partially is for partially synthetic "
        "data and is also right for the files of synthesize; fully is for fully synthetic data of "
        "other software (default: partially)")  # fmt: skip
    seed: int = option("K", integer_type(0, 2**32), default=0, help=
        "seed for the random choice of tables, if there are too many (default: 0)")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Relations(HouseholdColumns):
    """Persons within households whose files are judged."""

    heading: ClassVar = "persons within households, one person a row"
    about: ClassVar = ""

    rules: str | None = option("RULES", help=
        "rules for households, as for synthesize: census-relationships, a YAML file (safe), or a "
        "Python file, which is run as code; households that break a rule are counted")  # fmt: skip
    quantities: str | None = option("RULES", help=
        "statements about households, in a YAML or Python file like that of --rules; the command "
        "compares how often each statement is true")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Knowledge that an intruder can gain."""

    heading: ClassVar = "attack risk"
    about: ClassVar = "what an intruder who knows all records but one can learn about that record"

    posterior: str | None = option("FILE", help=
        "the posterior.nc that synthesize wrote with the files; the data options above must be the "
        "same as for that run")  # fmt: skip
    refit: bool = switch(
        "run the chains again with each file added to ORIGINAL; this is far more precise, and "
        "takes as long as synthesize for each file")  # fmt: skip
    target: str | None = option(choices=("household", "person"), help=
        "for persons within households: the unit about which the intruder guesses a value "
        "(default: household)")  # fmt: skip


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
        "two and three variables with the overlap of their intervals, whether the records can be "
        "told apart (pMSE), which tables fit worst, and how many unique combinations occur again. "
        "A table counts the records that have values of all its variables."
    )
    epilog: ClassVar = (
        "Writes evaluation.json and report.html to DIR, and with --posterior records.csv."
    )

    original: "Source" = option("ORIGINAL", positional=True, help=TABLE)
    synthetic: "tuple[Source, ...]" = option("SYNTHETIC", nargs="+", positional=True, help=
        "files with the columns and labels of ORIGINAL")  # fmt: skip
    variables: Names | None = option("A,B,..", name_list, help=
        "variables to compare (default: all columns of ORIGINAL)")  # fmt: skip
    drop: Names = option("A,B,..", name_list, default=(), help=
        "columns of ORIGINAL that are left out, if all others are compared")  # fmt: skip
    levels: "Source | None" = option("FILE", help=
        "file that declares the levels, with columns variable and level (default: the levels that "
        "ORIGINAL has; other labels are refused)")  # fmt: skip
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
    )
    conditions: "Source | None" = option("FILE", help=
        "structural zeros, as for synthesize; records that break a condition are "
        "counted")  # fmt: skip
    settles: tuple[tuple[str, str], ...] = option("A=B", two_variables, **MANY, help=
        "variable A settles variable B in ORIGINAL, as for synthesize")  # fmt: skip
    population: "Source | None" = option("FILE", help=
        "file of the whole population, if it is known; its proportions are compared "
        "too")  # fmt: skip
    holdout: "Source | None" = option("FILE", help=
        "records of the population from which the files were not made; the command then tests "
        "whether synthetic records are closer to ORIGINAL than to these records")  # fmt: skip
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
        "Compare models of a sample of categorical microdata: how well each predicts records that "
        "it has not seen, whether its replicates look like the sample, and its risk."
    )
    epilog: ClassVar = (
        "Writes compare.json, run.json and report.html to DIR. Chains are run on the whole sample "
        "and, for each fold, without the records held out."
    )

    models: Names = option("M,M,..", name_list, default=("hdp", "nplcm"), help=
        f"models to compare, from {', '.join(MODELS_OF['compare'])}; each may have options, as in "
        "hdp:level-prior=uniform or nplcm:components=20:ordered=age+income "
        "(default: hdp,nplcm)")  # fmt: skip
    population_size: int | None = option("N", integer_type(1, 2**53), help=
        "number of persons in the population; the risk is then compared too")  # fmt: skip
    parts: int = option("K", integer_type(2, 2**31), default=5, help=
        "number of random parts that the sample is divided into (default: 5)")  # fmt: skip
    folds: int = option("F", integer_type(1, 2**31), default=1, help=
        "number of parts that are held out, one at a time; F = K is a full cross-validation "
        "(default: 1)")  # fmt: skip
    data: Data = part(Data, without=("keep_recoding", "id", "weights"))
    fit: Fit = part(Fit, only=("groups",))
    chains: Chains = part(
        Chains, without=STOPPING,
        draws={"default": DRAWS, "help": f"draws kept from each chain (default: {DRAWS})"},
    )  # fmt: skip
    output: Output = part(Output, without=("keep_parameters",))


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Changes that may be made to the records, and the loss of information that they cause."""

    heading: ClassVar = "protection"

    recode: Names = option("SPEC", **MANY, help=
        "recodings that are made in any case, before the search for others: drop:A,B and "
        "merge:A=X+Y, as for --what-if of risk")  # fmt: skip
    k: tuple[tuple[int, int | None, Names | None], ...] = option("K", anonymity_type, **MANY, help=
        "k-anonymity: every combination of the key variables must have K records at the least. M=K "
        "asks this of every set of M key variables, and A,B=K of A and B together. A record with "
        "suppressed values counts the records that have its other values")  # fmt: skip
    strata: str | None = option("A", help=
        "column that is no key variable: --k is asked for within each of its values")  # fmt: skip
    suppress: float = option("SHARE", share_type, default=0.05, help=
        "largest share of the records in which values may be suppressed; variables are recoded "
        "until this share is enough. 0: only recode; 1: recode nothing beyond --recode, if "
        "suppression alone can meet the limits (default: 0.05)")  # fmt: skip
    importance: tuple[tuple[str, float], ...] = option("A=W", importance_type, **MANY, help=
        "weight of the information lost in a variable: with A=2, a bit lost in A counts as two "
        "bits (default: 1 for each variable)")  # fmt: skip
    refit: bool = switch(
        "run new chains on the recoded table, and estimate the risk of the protected file from "
        "these too; this takes as long again")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Protect(Command):
    """``bnp-models protect``."""

    name: ClassVar = "protect"
    first: ClassVar = (
        *(name for name in _FIRST if name != "weights"), "max_tau1", "max_risk", "k", "suppress",
    )  # fmt: skip
    heading: ClassVar = "protection"
    help: ClassVar = "recode and suppress until the risk of a sample is within limits"
    description: ClassVar = (
        "Protect a sample of categorical microdata: merge levels and drop variables, and then "
        "suppress values of single records, until the estimated risk is within the limits, or "
        "until k-anonymity is reached. A greedy search keeps the loss of information small."
    )
    epilog: ClassVar = (
        "Writes protected.csv, changes.json, run.json and report.html to DIR. Only protected.csv "
        "is meant for release; its columns that are not key variables are copied from SAMPLE."
    )

    population_size: int = option("N", integer_type(1, 2**53), required=True, help=POPULATION)
    limits: Limits = part(Limits)
    protection: Protection = part(Protection)
    data: Data = part(Data, fixed={"takes_id": True, "takes_weights": True})
    fit: Fit = _fit("protect", ("households", "cells"))
    chains: Chains = part(Chains)
    processes: Processes = part(Processes)
    output: Output = part(Output, fixed={"keep_parameters": True})
    filing: Filing = part(Filing)


def _data(without: Names, **changed: Any) -> Any:
    """Options for reading a sample whose conditions are suggested or checked."""
    return part(
        Data, without=("keep_recoding", *without), fixed={"allow_identifying": True},
        variables="variables (default: all columns)",
        levels="file that declares the levels, with columns variable and level", **changed,
    )  # fmt: skip


def _file() -> Any:
    """The one file that is written."""
    return part(
        Output, only=("out", "force", "quiet"),
        out={"metavar": "FILE", "help": "CSV or Parquet file"}, force="replace FILE",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Suggest(Command):
    """``bnp-models conditions suggest``."""

    name: ClassVar = "conditions"
    first: ClassVar = ("least", "out", "variables", "levels", "force", "quiet")
    description: ClassVar = (
        "write candidates with their expected numbers of records to a file of conditions; the "
        "other commands refuse this file until a person has confirmed each candidate"
    )

    least: float = option("E", number_above(0), default=5.0, help=
        "suggest combinations that should have at least this many records by chance, but have none "
        "(default: 5)")  # fmt: skip
    data: Data = _data(("id", "weights", "conditions", "settles"))
    output: Output = _file()


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """``bnp-models conditions check``."""

    name: ClassVar = "conditions"
    first: ClassVar = ("conditions", "out", "variables", "levels", "force", "quiet")
    description: ClassVar = (
        "write the records that are impossible, and the conditions that they break"
    )

    data: Data = _data(
        ("id", "weights", "settles"), conditions={"required": True, "help": "structural zeros"}
    )
    output: Output = _file()


Sampling: TypeAlias = Risk | Protect | Synthesize | Impute
"""Commands that sample one model."""

COMMANDS: tuple[type[Command], ...] = (Risk, Synthesize, Impute, Evaluate, Compare, Protect)
"""Commands whose options a file may hold."""

ACTIONS: dict[str, type[Command]] = {"suggest": Suggest, "check": Check}
"""Actions of the command ``conditions``."""
