"""Groups of options that several commands have."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypedDict

from bnp_models.cli.argument_types import (
    bin_number,
    file_of_variable,
    integer_type,
    mixture_type,
    name_list,
    number_above,
    number_at_least,
    number_of_variable,
    ordered_type,
    relative_kinds,
    share_type,
    two_variables,
    value_of_variable,
)
from bnp_models.cli.options import UsageError, flag, option, part, switch

if TYPE_CHECKING:
    from bnp_models.data.source import Source

Names: TypeAlias = tuple[str, ...]

MANY: dict[str, object] = {"nargs": "+", "action": "extend", "default": ()}
"""Of an option that takes values, and may be given again with more."""

STOPPING = ("until_rhat", "until_ess", "max_minutes")

MAX_MINUTES = 60.0

# Of a run for which neither draws nor a target are given.
DRAWS, UNTIL_RHAT, DEFAULT_MINUTES = 1000, 1.01, 10.0

TABLE = (
    "file with one record in each row: a text file (CSV and the like, compressed or not; - is "
    "standard input), a Parquet, Excel (.xlsx), Stata (.dta) or SPSS (.sav) file, or a folder of "
    "Parquet files"
)
FIXED_ALPHA = (
    "fixed value of the concentration parameter of the weights of components and classes (default: "
    "it is estimated)"
)
POPULATION = (
    "number of persons in the population, including those in the sample (default: the sum of "
    "--weights; without weights, this option is needed)"
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits with which the verdict on a release compares the risk."""

    heading: ClassVar = "limits"
    about: ClassVar = "the command says whether a release meets these limits"

    max_tau1: float | None = option("X", number_at_least(0), help=
        "limit for tau_1, the number of records that are unique in the population. The verdict is "
        "yes if the whole 95%% interval of tau_1 is within the limit, no if the mean is above it, "
        "and unknown otherwise, or if the model does not fit (default: no limit)")  # fmt: skip
    max_risk: float | None = option("P", share_type, help=
        "limit, from 0 to 1, for the probability of each single record to be unique in the "
        "population, r1 (default: no limit)")  # fmt: skip
    strict: bool = switch(
        "end with exit code 3 if the verdict is not yes, if the chains have not converged on "
        "tau_1, or if the checks find a misfit")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recoding:
    """Recodings of the levels of columns."""

    heading: ClassVar = "data"

    bins: tuple[tuple[str, int], ...] = option("A=B", bin_number, **MANY, help=
        "put the numbers of column A into about B bins with equally many records. A number that "
        "fills a bin by itself stays a level of its own, and so do labels that are not numbers. "
        "Synthetic files have numbers again, which are drawn within the bins")  # fmt: skip
    top_code: tuple[tuple[str, float], ...] = option("A=X", number_of_variable, **MANY, help=
        "replace all numbers of column A that are X or larger by one level, X+")  # fmt: skip
    merge_rare: int | None = option("K", integer_type(2, 2**31), help=
        "merge each level that fewer than K records have: with other levels of its group, if "
        "--groups gives groups; with a neighbouring level, if the labels are numbers in order or "
        "the variable is --ordered; otherwise with all other rare levels, into the level "
        "'other'")  # fmt: skip
    level: tuple[tuple[str, str], ...] = option("A=X", value_of_variable, **MANY, help=
        "treat value X of column A as a level of its own, such as a code for 'no answer': it is "
        "not put into bins, not top-coded, not merged, and not placed in the order of the "
        "numbers")  # fmt: skip
    number: tuple[tuple[str, str], ...] = option("A=X", value_of_variable, **MANY, help=
        "treat value X of column A as a number, although it looks like a code, such as 99 or "
        "-1")  # fmt: skip
    recode_by: "Source | None" = option("FILE", help=
        "file of recodings with the columns variable, level and becomes, such as the recoding.csv "
        "that --keep-recoding writes. A row that names only a variable drops this variable. A "
        "level such as <25, '25 to <50' or >=85 stands for all numbers in this range that have no "
        "row of their own")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Text:
    """Format of the files of records."""

    heading: ClassVar = "reading"

    sep: str | None = option("C", help=
        "character between the cells of SAMPLE, such as ';' or '\\t' (default: "
        "detected)")  # fmt: skip
    encoding: str | None = option("E", help=
        "encoding of SAMPLE, such as cp1252 (default: detected)")  # fmt: skip
    missing: Names | None = option("X,A=Y,..", name_list, help=
        "labels that stand for a value which is not known: X in every column, A=Y label Y of "
        "column A, such as .,income=-9 (default: only empty cells are missing values)")  # fmt: skip
    skip: int = option("K", integer_type(0, 2**31), default=0, help=
        "number of lines of a text file, or of rows of a sheet, above the header, such as a title "
        "(default: 0)")  # fmt: skip
    sheet: str | None = option("NAME", help=
        "sheet of the workbook to read, given by its name or by its number, counted from 1 "
        "(default: the first that is not hidden)")  # fmt: skip
    decimal: str | None = option("C", help=
        "decimal mark, a comma or a point (default: detected in each column of which --bins, "
        "--top-code or --weights use the numbers)")  # fmt: skip
    thousands: str | None = option("C", help=
        "mark between thousands, such as ',', '.', ' ' or \"'\" (default: detected in the same "
        "columns)")  # fmt: skip
    normalise: bool = switch(
        "merge labels that are different spellings of one value: they differ only in the Unicode "
        "normal form, in invisible characters, in spaces, in upper and lower case, or in the form "
        "of a number, such as 01, 1 and 1.0")  # fmt: skip
    empty_as_level: bool = switch(
        "give missing values the level 'not applicable' where another column determines that they "
        "are missing, such as the occupation of children. With models that take structural zeros, "
        "only these records can then have this level, and they can have no other (default: every "
        "missing value is taken as missing at random)")  # fmt: skip
    settles_empty: tuple[tuple[str, str], ...] = option("A=B", two_variables, **MANY, help=
        "column A determines where values of column B are missing: give them the level 'not "
        "applicable', as --empty-as-level does, however few the records are")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Data:
    """Sample to read, its variables, and how the file is read."""

    heading: ClassVar = "data"

    sample: "Source" = option("SAMPLE", positional=True, help=TABLE)
    variables: Names | None = option("A,B,..", name_list, help=
        "key variables (default: all columns); a name with a comma is written in double "
        "quotes")  # fmt: skip
    levels: "Source | None" = option("FILE", help=
        "file that declares the levels, with the columns variable and level (default: the levels "
        "that occur in SAMPLE)")  # fmt: skip
    drop: Names = option("A,B,..", name_list, default=(), help=
        "columns to leave out; all others are used (default: none)")  # fmt: skip
    allow_identifying: bool = switch(
        "accept key variables that identify records, or nearly do, and those that look like "
        "weights or counts; without this option they are refused unless --variables names "
        "them")  # fmt: skip
    recoding: Recoding = part(Recoding)
    keep_recoding: bool = switch(
        "also write recoding.csv, which lists the new level of each recoded level and can be given "
        "to --recode-by")  # fmt: skip
    id: str | None = option("COLUMN", help=
        "column that identifies records. It is not a key variable; the results give its value with "
        "each record")  # fmt: skip
    weights: str | None = option("COLUMN", help=
        "column of the design weights: the number of persons of the population that each record "
        "stands for; for the risk of households, the number of households that each household "
        "stands for, in the rows of all its persons (default: all the same)")  # fmt: skip
    conditions: "Source | None" = option("FILE", help=
        "file of structural zeros, for models that take them: the header names variables, and each "
        "row is a combination that cannot occur. An empty cell stands for any value, and a cell "
        "may stand for several levels: a|b, !x, <25, >=65, 15-24")  # fmt: skip
    settles: tuple[tuple[str, str], ...] = option("A=B", two_variables, **MANY, help=
        "variable A determines variable B, as a municipality determines its region: each level of "
        "A occurs only with the level of B that it has in SAMPLE, and its combinations with other "
        "levels of B are structural zeros")  # fmt: skip
    text: Text = part(Text)

    takes_id: bool = False
    """Whether the command has --id."""
    takes_weights: bool = False
    """Whether the command has --weights."""

    @property
    def zeros(self) -> str | None:
        """The option that gives structural zeros, if one does."""
        return "--conditions" if self.conditions else "--settles" if self.settles else None


@dataclass(frozen=True, kw_only=True)
class HouseholdColumns:
    """Columns of households."""

    heading: ClassVar = "ndpmpm"
    about: ClassVar = (
        "persons within households; the file has one person in each row. There are as many "
        "synthetic households of each size as in the sample"
    )

    household: str | None = option(
        "COLUMN", help="column that identifies the household of each person"
    )
    household_variables: Names | None = option("A,B,..", name_list, help=
        "columns that are the same for all members of a household")  # fmt: skip
    roles: "Source | None" = option("FILE", help=
        "file with the columns role and label, which gives the labels of the head, the spouse and "
        "other roles, as words of any language or as codes (docs/household_rules.md); the rules "
        "census-relationships use it, and --head uses it to find the head")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HouseholdFit(HouseholdColumns):
    """Options of the models of persons within households."""

    rules: str | None = option("RULES", help=
        "rules that every household obeys: census-relationships (rules that come with the "
        "program), a YAML file (.yaml), of which nothing is run as code, or a Python file (.py) "
        "that defines `rules` and is run as code (docs/household_rules.md)")  # fmt: skip
    head: str | None = option(choices=("auto", "yes", "no"), default="auto", help=
        "treat the variables of the head as variables of the household. auto: do so if a usual "
        "label such as Householder, or a label of --roles, says who is the head; a household that "
        "does not have exactly one head is then an error (default: auto)")  # fmt: skip
    member_components: int | None = option("S", integer_type(2, 2**12), help=
        "number of classes of members: of all that classes of households share (default: 40), or "
        "of each class of households, if they are nested (default: 15)")  # fmt: skip
    member_classes: str | None = option(choices=("nested", "shared"), help=
        "nested: each class of households has its own classes of members, as in the paper; shared: "
        "all classes of households have the same classes of members, with different weights "
        "(default: shared)")  # fmt: skip
    relative: str | tuple[str | tuple[str, str], ...] | None = option(
        "auto|none|A,B,..", relative_kinds, help=
        "variables that are modelled relative to the value of the head: by the difference, if the "
        "labels are numbers in order (age), otherwise by whether the value is the same (race); "
        "A:difference or A:same overrides this. The model then makes couples similar in age "
        "without a separate class for each age. auto: those for which the members of a "
        "relationship in the sample are like their heads, for these relationships only (default: "
        "auto to make files, none for risks, for which auto cannot be used)")  # fmt: skip
    prior_possible: int | None = option("C", integer_type(0, 2**31), help=
        "with --rules: multiply the prior by P(possible) to the power C, as if C households drawn "
        "without rules had been possible; fewer impossible households are simulated, and chains "
        "agree sooner, but husbands, wives and others of whom a household has one at most become "
        "rarer if their values are not relative to the head's (default: 60, at most a twentieth of "
        "the households, where --relative auto chose such values, otherwise 0, as in the paper)"
    )  # fmt: skip
    sizes: str | None = option(choices=("random", "given"), help=
        "random: the sizes of households are part of the model; given: they are fixed by the "
        "design of the sample (default: random)")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CellFit:
    """Options of the models of cells."""

    heading: ClassVar = "polettini-stander"
    about: ClassVar = (
        "these models estimate the risk of every cell, and write cells.csv instead of records.csv"
    )

    cells: int | None = option("K", integer_type(1, 2**62), help=
        "number of cells that a person can belong to (default: all combinations of "
        "levels)")  # fmt: skip
    hyperparameters: str | None = option(choices=("empirical-bayes", "full-bayes", "fixed"), help=
        "how the hyperparameters are found. empirical-bayes: by maximising the likelihood; "
        "full-bayes: they are sampled by NUTS; fixed: they have the values given below (default: "
        "fixed if a value is given below, otherwise empirical-bayes, or full-bayes if the "
        "likelihood has no maximum)")  # fmt: skip
    a: float | None = option("X", number_above(0), help=
        "first parameter of the sampling fractions, which are Beta(a, b) in model 1 and Beta(a "
        "phat, a (1 - phat)) in model 2, where phat is the sampling fraction of the cell according "
        "to its weights (default with --hyperparameters fixed: 0.86 in model 1, 80 in model "
        "2)")  # fmt: skip
    b: float | None = option("X", number_above(0), help=
        "second parameter of the sampling fractions in model 1 (default with --hyperparameters "
        "fixed: 80)")  # fmt: skip
    gamma: float | None = option("X", number_above(0), help=
        "share of the cells that can be sampled, in model 2 (default with --hyperparameters fixed: "
        "0.7)")  # fmt: skip
    empty_phat: tuple[tuple[float, float], ...] | None = option("P:W,..", mixture_type, help=
        "sampling fractions of the empty cells in model 2, each with the share of the empty cells "
        "that have it, such as 0.0034:0.86,0.028:0.14 (default: the sampling fraction of the "
        "cell's stratum, if the levels of one or two key variables explain the weights; otherwise "
        "that of the whole sample, with a warning)")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The model that is fitted, and its options."""

    heading: ClassVar = "model"

    model: str | None = option(help="model to fit (default: %(default)s)")
    concentration: str | None = option(choices=("shared", "record", "hierarchical"), help=
        "concentration parameter alpha of hdp. shared: one alpha for all records; record: one "
        "alpha for each record; hierarchical: one alpha for each record, with a prior whose rate "
        "is estimated (default: shared)")  # fmt: skip
    augmentation: str | None = option(choices=("boxes", "simulation"), help=
        "how hdp and mixed-membership with --conditions draw impossible records, which their "
        "samplers need. boxes: draw only the numbers of records in boxes of cells; simulation: "
        "draw the records one by one, which is slower (default: boxes, or simulation if there are "
        "too many boxes)")  # fmt: skip
    not_applicable: bool | None = option(action="store_const", const=True, help=
        "for hdp and mixed-membership with --conditions: leave out of each record the values that "
        "its other values determine")  # fmt: skip
    components: int | None = option("K", integer_type(2, 2**16), help=
        "number of latent classes of nplcm and tnplcm (default: 50), of profiles of "
        "mixed-membership (default: 20), or of classes of households of ndpmpm (default: "
        "40)")  # fmt: skip
    level_prior: str | None = option(choices=("learned", "uniform"), help=
        "prior of the level probabilities in components and classes. learned: a mean and a "
        "concentration are estimated for each variable; uniform: the uniform prior of the papers "
        "(default: learned)")  # fmt: skip
    level_shape: float | None = option("X", number_above(0), help=
        "parameter of a symmetric Dirichlet prior of the level probabilities, which replaces "
        "--level-prior")  # fmt: skip
    alpha: float | None = option("X", number_above(0), help=FIXED_ALPHA)
    ordered: str | Names | None = option("auto|none|A,B,..", ordered_type, help=
        "variables whose neighbouring levels are similar, such as ages in years; their level "
        "probabilities are modelled by bands of levels, and by levels within bands. auto: "
        "variables with more than a dozen numeric levels. The order of the levels is that of "
        "their numbers, or that of --levels, without which labels that are no numbers have none "
        "(default: auto)")  # fmt: skip
    groups: "tuple[tuple[str, Source], ...] | None" = option(
        "A=FILE", file_of_variable, nargs="+", action="extend", help=
        "CSV file of groups of the levels of column A, such as shorter codes of occupations, with "
        "the header level,group[,group..], from the smallest groups to the largest. Estimates for "
        "a level use the other levels of its group, and levels are merged within groups "
        "first")  # fmt: skip
    households: HouseholdFit = part(HouseholdFit)
    cells: CellFit = part(CellFit, last=True)

    @property
    def chosen_model(self) -> str:
        """Name of the model, once it is known whether it is of persons or of households."""
        assert self.model is not None
        return self.model

    @property
    def named_ordered(self) -> Names:
        """Variables that --ordered names."""
        return self.ordered if isinstance(self.ordered, tuple) else ()

    @property
    def orders_numbers(self) -> bool:
        """Whether variables of many numbers are ordered although nobody names them."""
        return self.ordered in (None, "auto")


class Sweeps(TypedDict):
    """Arguments of `bnp_models.sample` that say how long chains are."""

    num_chains: int
    num_warmup: int
    num_samples: int
    thin: int


@dataclass(frozen=True, kw_only=True)
class Chains:
    """How many chains are run, and how long."""

    heading: ClassVar = "chains"

    chains: int = option(
        "K", integer_type(1, 2**16), default=4, help="number of chains (default: 4)"
    )
    warmup: int = option("K", integer_type(0, 2**31), default=1000, help=
        "number of sweeps of each chain before its first draw (default: 1000)")  # fmt: skip
    draws: int | None = option("K", integer_type(1, 2**31), help=
        f"number of draws kept from each chain (default: {DRAWS}, then more until --until-rhat is "
        "met)")  # fmt: skip
    thin: int = option("K", integer_type(1, 2**31), default=1, help=
        "number of sweeps for each draw that is kept (default: 1)")  # fmt: skip
    seed: int = option("K", integer_type(0, 2**32), default=0, help=
        "seed of the random numbers; the same seed gives the same results (default: "
        "0)")  # fmt: skip
    resume: bool = switch("continue from the checkpoint in DIR, if there is one")
    checkpoint_seconds: float = option("S", number_at_least(0), default=10.0, help=
        "minimum time between checkpoints, in seconds (default: 10)")  # fmt: skip
    until_rhat: float | None = option("R", number_above(1), help=
        "after --draws, continue until all that is reported (the risk, or the margins) has an "
        "R-hat of at most R and the effective sample sizes of --until-ess, and the log-likelihood "
        f"has an R-hat of at most 1.1; or until --max-minutes have passed (default: {UNTIL_RHAT}, "
        "if --draws is not given)")  # fmt: skip
    until_ess: float | None = option("E", number_above(0), help=
        "effective sample size, bulk and tail, that --until-rhat waits for, of all chains together "
        "(default: 100 for each chain)")  # fmt: skip
    max_minutes: float | None = option("M", number_above(0), help=
        "stop after this many minutes even if the chains do not agree yet, or have not made the "
        "first draws. Compilation, checks of the chains and the minutes before a --resume count "
        "too; a compilation that has begun is finished first (default: "
        f"{DEFAULT_MINUTES:g}, or {MAX_MINUTES:g} with --until-rhat, or more if the first draws "
        "take more)")  # fmt: skip

    @property
    def num_draws(self) -> int:
        """Draws kept from each chain, before more are made for a target."""
        return DRAWS if self.draws is None else self.draws

    @property
    def sweeps(self) -> Sweeps:
        """How long the chains are."""
        return {
            "num_chains": self.chains, "num_warmup": self.warmup, "num_samples": self.num_draws,
            "thin": self.thin,
        }  # fmt: skip

    def settled(self) -> "Chains":
        """Check the options for stopping, and return the options with all defaults filled in.

        Raises
        ------
        UsageError
            If the options contradict each other.
        """
        until_rhat, max_minutes = self.until_rhat, self.max_minutes
        if self.draws is None and until_rhat is None and self.chains > 1:
            until_rhat, max_minutes = UNTIL_RHAT, max_minutes or DEFAULT_MINUTES
        if until_rhat is None:
            for name in STOPPING[1:]:
                if vars(self)[name] is not None:
                    raise UsageError(
                        f"{flag(name)}: is used only with --until-rhat; add --until-rhat, or leave "
                        f"{flag(name)} out"
                    )
        elif self.chains == 1:
            raise UsageError(
                "--until-rhat: R-hat compares chains, and there is only one; set --chains to 2 or "
                "more"
            )
        elif max_minutes is None:
            max_minutes = MAX_MINUTES
        return dataclasses.replace(
            self, draws=self.num_draws, until_rhat=until_rhat, max_minutes=max_minutes
        )


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Processes that run the chains together."""

    heading: ClassVar = "several processes"
    about: ClassVar = (
        "start the same command in each process, on one machine or on several that share the "
        "files; each process runs its share of the chains, and the first one writes DIR"
    )

    distributed: bool = switch(
        "connect with the other processes; options that are not given below are taken from Slurm, "
        "Open MPI or Kubernetes")  # fmt: skip
    coordinator: str | None = option("HOST:PORT", help=
        "address of the first process, with a port that is not in use")  # fmt: skip
    processes: int | None = option("K", integer_type(1, 2**16), help="number of processes")
    process: int | None = option("I", integer_type(0, 2**16), help=
        "number of this process, counted from 0")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Output:
    """The folder of the results, and what is shown and printed."""

    heading: ClassVar = "output"

    out: str = option("DIR", required=True, help="folder for the results")
    keep_parameters: bool = switch(
        "also write the parameters of the model to posterior.nc, which takes 20 kB or more for "
        "each draw")  # fmt: skip
    no_records: bool = switch(
        "leave everything that describes single records or fewer than five persons out of "
        "report.html, so that people who may not see the sample may see this page. records.csv and "
        "cells.csv are then not written")  # fmt: skip
    force: bool = switch("replace finished results in DIR")
    progress: bool = switch("show progress bars even where stderr is not a terminal")
    quiet: bool = switch("print nothing but errors")

    command: str = ""
    """Command line that makes these results, or goes on making them."""
    repeating: str = ""
    """Text of the file that repeats the run."""

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return Path(self.out)


@dataclass(frozen=True, kw_only=True)
class Filing:
    """Names by which a page is filed."""

    heading: ClassVar = "output"

    title: str | None = option("TEXT", help="title at the top of the page")
    author: str | None = option("TEXT", help="author named on the page")
