"""Options of the command ``bnp-models``, and the models that it knows."""

import argparse

import shtab

from bnp_models.cli.argument_types import (
    integer_type,
    mixture_type,
    name_list,
    number_above,
    ordered_type,
    seconds_type,
)
from bnp_models.cli.data_options import (
    add_conditions,
    add_data,
    add_groups,
    add_reading,
    add_recoding,
)
from bnp_models.cli.household_options import add_household_columns, add_households
from bnp_models.cli.models import MODELS_OF
from bnp_models.cli.release_options import (
    add_filing,
    add_limits,
    add_protection,
    add_spreadsheet,
)
from bnp_models.data.writing import FORMATS
from bnp_models.version import __version__

STOPPING = ("until_rhat", "until_ess", "max_minutes")

MAX_MINUTES = 60.0

# Of a run for which neither draws nor a target are given.
DRAWS, UNTIL_RHAT, DEFAULT_MINUTES = 1000, 1.01, 10.0

_TABLE = (
    "text file (CSV and the like, compressed or not; - is standard input), Parquet, Excel (.xlsx), "
    "Stata (.dta) or SPSS (.sav) file, one record a row, or a folder of Parquet files"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """End with code 2 and one line."""
        self.exit(2, f"{self.prog}: error: {one_line(message)}\n")


def make_parser() -> argparse.ArgumentParser:
    """Parser of all commands."""
    parser = _Parser(
        prog="bnp-models",
        description="Bayesian non-parametric models for categorical microdata.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bnp-models {__version__}")
    shtab.add_argument_to(
        parser,
        "--print-completion",
        help="print what makes a shell complete options: put it where your shell looks for it",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_risk(commands)
    _add_synthesize(commands)
    _add_impute(commands)
    _add_evaluate(commands)
    _add_compare(commands)
    _add_protect(commands)
    for command in commands.choices.values():
        command.add_argument("--config", metavar="FILE",
                             help="TOML file of options, by their names, or in tables by the "
                             "names of commands; what is said here has the last word")  # fmt: skip
    add_conditions(commands, _TABLE)
    return parser


def _add_risk(commands) -> None:
    """Add the command ``risk``."""
    parser = _add_command(
        commands,
        "risk",
        help="estimate how many sample uniques are unique in the population",
        description="Estimate the disclosure risk of a sample of categorical microdata: how many "
        "of its unique records are unique in the population, and which.",
        epilog="Writes risk.json, records.csv (or cells.csv), posterior.nc and report.html to DIR.",
    )
    parser.add_argument("--population-size", metavar="N", type=integer_type(1, 2**53),
                        required=True,
                        help="persons in the population, those of the sample included")  # fmt: skip
    parser.add_argument("--validate", metavar="SPLITS", type=integer_type(1, 101), nargs="?",
                        const=3,
                        help="also fit so many random quarters of the sample, and compare their "
                        "estimates with the truth in the whole sample: takes as long again for "
                        "each, or less (3 where no number is given)")  # fmt: skip
    parser.add_argument("--ties", choices=("on", "sensitivity", "off"), default="on",
                        help="layer for ties over the model, cells that are fuller or emptier than "
                        "it explains: on, tau_1, tau_2 and the records' risks are with it; "
                        "sensitivity, without it, and those with it are evaluated beside them; "
                        "off, without it (default: on)")  # fmt: skip
    parser.add_argument("--what-if", metavar="SPEC", nargs="+", action="extend", default=[],
                        help="also evaluate the risk on coarser keys, from the same draws: each of "
                        "drop:A,B (without these variables), keep:A,B (without the others), "
                        "merge:A=X+Y (levels that become one) and group:A or group:A=2 (the "
                        "--groups of its levels in their place, or the groups of these), or of "
                        "several apart by semicolons; "
                        "each variable dropped by itself is evaluated always")  # fmt: skip
    parser.add_argument("--keys", metavar="A,B,..", type=name_list, action="append",
                        default=[],
                        help="a set of key variables, whose risk is evaluated too; may be given "
                        "more than once. The model is fitted to --variables, by default to all "
                        "that are in some set")  # fmt: skip
    parser.add_argument("--all-records", action="store_true",
                        help="records.csv has all records, not only those that are alone with "
                        "their values in the sample, and the number f of records that have the "
                        "same: r1 is 0 where f is not 1, r2 the expected value of 1/F "
                        "all the same")  # fmt: skip
    parser.add_argument("--baselines", action="store_true",
                        help="set classical estimates beside the model's, which take a few "
                        "seconds: that of Benedetti and Franconi, and Poisson log-linear models "
                        "with main effects, with all two-way interactions, and with some of "
                        "them; cells.csv has their risks too")  # fmt: skip
    add_limits(parser)
    output = _add_common(parser, "risk", keep_parameters=False)
    add_filing(output)
    add_spreadsheet(output)
    _add_cells(parser)


def _add_cells(parser):
    """Add the options of the models of cells."""
    cells = parser.add_argument_group(
        "polettini-stander", "risk of every cell; writes cells.csv instead of records.csv"
    )
    cells.add_argument("--cells", metavar="K", type=integer_type(1, 2**62),
                       help="cells that a person can fall in (default: all combinations of "
                       "levels)")  # fmt: skip
    cells.add_argument("--hyperparameters", choices=("empirical-bayes", "full-bayes", "fixed"),
                       help="those of the largest likelihood, sampled by NUTS, or as given below "
                       "(default: fixed if any is given below, else empirical-bayes, or "
                       "full-bayes where the likelihood has no maximum)")  # fmt: skip
    for name, what in (
        ("alpha", "shape of the cell means (with fixed: 0.92 in model 1, 0.1 in 2, as in the "
                  "paper)"),
        ("a", "of the sampling fractions: Beta(a, b) in model 1 (with fixed: 0.86), Beta(a phat, "
              "a (1 - phat)) in 2 (with fixed: 80)"),
        ("b", "of model 1 (with fixed: 80)"),
        ("gamma", "of model 2: share of the cells that can be sampled (with fixed: 0.7)"),
    ):  # fmt: skip
        cells.add_argument(f"--{name}", metavar="X", type=number_above(0), help=what)
    cells.add_argument("--empty-phat", metavar="P:W,..", type=mixture_type,
                       help="of model 2: sampling fractions assumed of empty cells, and the share "
                       "of these with each, as 0.0034:0.86,0.028:0.14 (default: that of the "
                       "whole sample)")  # fmt: skip


def _add_synthesize(commands) -> None:
    """Add the command ``synthesize``."""
    parser = _add_command(
        commands,
        "synthesize",
        help="make completely synthetic data sets",
        description="Make synthetic data sets with the columns and labels of a sample of "
        "categorical microdata. Missing values of the sample are allowed; the synthetic data have "
        "none, and no record in a structural zero.",
        epilog="Writes synthetic_1.csv and so on, run.json, posterior.nc and report.html to DIR. "
        "Only the synthetic files are meant for release.",
    )
    _add_format(parser)
    parser.add_argument("--datasets", metavar="M", type=integer_type(1, 10**6), default=5,
                        help="data sets (default: 5)")  # fmt: skip
    parser.add_argument("--method", choices=("predictive", "balanced", "calibrated"),
                        default="predictive",
                        help="predictive: each file is a sample of the posterior predictive "
                        "distribution, with parameters of its own; balanced: from the mean of many "
                        "draws, combinations that are alike with nearly as many records as they "
                        "are expected to have; calibrated: the same, with one- and two-way tables "
                        "brought near to the sample's. Files come nearer to the sample in this "
                        "order, and more of its unique combinations recur (default: "
                        "predictive)")  # fmt: skip
    parser.add_argument("--keep", metavar="A,B,..", type=name_list, default=[],
                        help="of nplcm and tnplcm: columns that every record of the sample keeps, "
                        "the others being drawn given them (partially synthetic "
                        "files)")  # fmt: skip
    parser.add_argument("--carry", metavar="A,B,..", type=name_list, default=[],
                        help="with --keep: more columns that are copied and not modelled; refused "
                        "where they tell whose records these are")  # fmt: skip
    parser.add_argument("--rows", metavar="N", type=integer_type(1, 2**31),
                        help="records of each (default: as many as the sample has)")  # fmt: skip
    # The evaluation of what an intruder can learn reads the parameters.
    _add_common(parser, "synthesize", keep_parameters=True)


def _add_impute(commands) -> None:
    """Add the command ``impute``."""
    parser = _add_command(
        commands,
        "impute",
        help="complete missing values, several times",
        description="Complete the missing values (empty cells) of a sample of categorical "
        "microdata: several times, so that the uncertainty shows in how much the data sets differ. "
        "No completed record is in a structural zero.",
        epilog="Writes imputed_1.csv and so on, run.json, posterior.nc and report.html to DIR.",
    )
    _add_format(parser)
    parser.add_argument("--datasets", metavar="M", type=integer_type(1, 10**6), default=5,
                        help="data sets, each from a draw of its own (default: 5)")  # fmt: skip
    _add_common(parser, "impute", keep_parameters=False)


def _add_format(parser) -> None:
    """Add the option of the files' format."""
    parser.add_argument("--format", choices=FORMATS, default="csv",
                        help="of the files: csv, parquet, Stata's dta or SPSS's sav, these with "
                        "the value labels of SAMPLE if it is one; names that they cannot have are "
                        "changed, and are the columns' labels (default: csv)")  # fmt: skip


def _add_evaluate(commands) -> None:
    """Add the command ``evaluate``."""
    parser = commands.add_parser(
        "evaluate",
        allow_abbrev=False,
        help="judge synthetic data sets by their original",
        description="Judge synthetic data sets by their original: proportions of all tables of "
        "one, two and three variables with the overlap of their intervals, whether records can be "
        "told apart (pMSE), which tables fit worst, and how many unique combinations recur. A "
        "record counts in the tables of whose variables it has all values.",
        epilog="Writes evaluation.json and report.html to DIR, and with --posterior records.csv.",
    )
    parser.set_defaults(name="evaluate", resume=False)
    parser.add_argument("original", metavar="ORIGINAL", help=_TABLE)
    parser.add_argument("synthetic", metavar="SYNTHETIC", nargs="+",
                        help="files with the columns and labels of ORIGINAL")  # fmt: skip
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results")
    data = parser.add_argument_group("data")
    data.add_argument("--variables", metavar="A,B,..", type=name_list,
                      help="variables to judge by (default: all columns of ORIGINAL)")  # fmt: skip
    data.add_argument("--levels", metavar="FILE",
                      help="declared levels: columns variable and level (default: those that "
                      "ORIGINAL has; other labels are refused)")  # fmt: skip
    add_recoding(data)
    data.add_argument("--changes", metavar="FILE",
                      help="changes.json of protect, where SYNTHETIC is its protected.csv: "
                      "ORIGINAL is recoded as that file was, and what suppression took from it is "
                      "judged")  # fmt: skip
    add_reading(data, "ORIGINAL, --population and --holdout")
    data.add_argument("--conditions", metavar="FILE",
                      help="structural zeros, as for synthesize: records that break one are "
                      "counted")  # fmt: skip
    data.add_argument("--population", metavar="FILE",
                      help="the whole population, where it is known: its proportions are compared "
                      "too")  # fmt: skip
    data.add_argument("--holdout", metavar="FILE",
                      help="records of the population that the files were not made of: whether "
                      "synthetic records are closer to the original's than to these")  # fmt: skip
    data.add_argument("--keys", metavar="A,B,..", type=name_list, action="append", default=[],
                      help="variables that an intruder may know: replicated uniques, and what the "
                      "files disclose of the others (DiSCO); may be given more than "
                      "once")  # fmt: skip
    data.add_argument("--targets", metavar="A,B,..", type=name_list,
                      help="variables that he would like to know (default: all that are not "
                      "keys)")  # fmt: skip
    data.add_argument("--trees", action="store_true",
                      help="tell records apart by classification trees too, which see interactions "
                      "of any order (needs scikit-learn)")  # fmt: skip
    data.add_argument("--combining", choices=("partially", "fully"), default="partially",
                      help="rule that combines the files: that for partially synthetic data, "
                      "right for those of synthesize too, or that for fully synthetic data of "
                      "other makers (default: partially)")  # fmt: skip
    data.add_argument("--seed", metavar="K", type=integer_type(0, 2**32), default=0,
                      help="chooses tables where there are too many (default: 0)")  # fmt: skip
    group = parser.add_argument_group("persons within households, one person a row")
    add_household_columns(group)
    group.add_argument("--rules", metavar="RULES",
                       help="what every household keeps, as for synthesize: "
                       "census-relationships, a YAML file (safe), or a Python file, which is run "
                       "as code; households that break a rule are counted")  # fmt: skip
    group.add_argument("--quantities", metavar="RULES",
                       help="statements about households, in a YAML or Python file like that of "
                       "--rules: how often each is true is compared")  # fmt: skip
    attack = parser.add_argument_group(
        "attack risk", "what an intruder who knows all records but one can tell of that one"
    )
    attack.add_argument("--posterior", metavar="FILE",
                        help="the posterior.nc that synthesize wrote with the files; the options "
                        "for data above must be those that it was given")  # fmt: skip
    attack.add_argument("--refit", action="store_true",
                        help="run the chains again with each file added to ORIGINAL: takes as long "
                        "as synthesize did for each file, and is far more precise")  # fmt: skip
    attack.add_argument("--target", choices=("household", "person"),
                        help="of persons within households: whose value is guessed (default: "
                        "household)")  # fmt: skip
    output = parser.add_argument_group("output")
    _add_output(output)


def _add_compare(commands) -> None:
    """Add the command ``compare``."""
    parser = _add_command(
        commands,
        "compare",
        help="compare models of a sample by evidence",
        description="Compare models of a sample of categorical microdata: how well each predicts "
        "records that it has not seen, whether its replicates look like the sample, and its risk.",
        epilog="Writes compare.json, run.json and report.html to DIR. Chains are run on the whole "
        "sample and, for each fold, without the records held out.",
    )
    parser.add_argument("--models", metavar="M,M,..", type=name_list, default=["hdp", "nplcm"],
                        help=f"of {', '.join(MODELS_OF['compare'])}, each with options if wanted, "
                        "as hdp:level-prior=uniform or nplcm:components=20:ordered=age+income "
                        "(default: hdp,nplcm)")  # fmt: skip
    parser.add_argument("--population-size", metavar="N", type=integer_type(1, 2**53),
                        help="persons in the population: the risk is compared too")  # fmt: skip
    parser.add_argument("--parts", metavar="K", type=integer_type(2, 2**31), default=5,
                        help="parts that the sample is cut into at random (default: "
                        "5)")  # fmt: skip
    parser.add_argument("--folds", metavar="F", type=integer_type(1, 2**31), default=1,
                        help="how many of them are held out, one at a time; K folds are a full "
                        "cross-validation (default: 1)")  # fmt: skip
    add_data(parser, "compare")
    add_groups(parser.add_argument_group("model"))
    _add_chains(parser)
    _add_output(parser.add_argument_group("output"))


def _add_protect(commands) -> None:
    """Add the command ``protect``."""
    parser = _add_command(
        commands,
        "protect",
        help="recode and suppress until a sample meets limits of the risk",
        description="Protect a sample of categorical microdata: merge levels and drop variables, "
        "and then suppress values of single records, until the estimated risk meets limits, at "
        "the least loss of information that a greedy search finds.",
        epilog="Writes protected.csv, changes.json, run.json and report.html to DIR. Only "
        "protected.csv is meant for release: its other columns are those of SAMPLE.",
    )
    parser.add_argument("--population-size", metavar="N", type=integer_type(1, 2**53),
                        required=True,
                        help="persons in the population, those of the sample included")  # fmt: skip
    add_limits(parser)
    add_protection(parser)
    add_filing(_add_common(parser, "protect", keep_parameters=True))


def _add_command(commands, name: str, **texts):
    """Add a command that takes a sample and fills a folder."""
    parser = commands.add_parser(name, allow_abbrev=False, **texts)
    parser.set_defaults(name=name)
    parser.add_argument("sample", metavar="SAMPLE", help=_TABLE)
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results")
    return parser


def _add_common(parser, name, keep_parameters):
    """Add the options that all commands of one model share: data, model, chains, output."""
    add_data(parser, name)
    model = parser.add_argument_group("model")
    models = MODELS_OF[name]
    model.add_argument("--model", choices=models, default=models[0],
                       help=f"(default: {models[0]})")  # fmt: skip
    if "hdp" in models:
        model.add_argument("--concentration", choices=("shared", "record", "hierarchical"),
                           help="of the hdp model: one alpha for all records, one each, or one "
                           "each with an unknown rate (default: shared)")  # fmt: skip
        model.add_argument("--augmentation", choices=("boxes", "simulation"),
                           help="of hdp and mixed-membership under --conditions: how records of "
                           "the impossible region are drawn (default: boxes, or simulation where "
                           "they are too many)")  # fmt: skip
        model.add_argument("--not-applicable", action="store_const", const=True,
                           help="of hdp and mixed-membership under --conditions: leave out of a "
                           "record the items that another variable settles")  # fmt: skip
    model.add_argument("--components", metavar="K", type=integer_type(2, 2**16),
                       help="latent classes of nplcm and tnplcm (default: 50), or components "
                       "of mixed-membership (default: 20)" if "hdp" in models else
                       "latent classes (default: 50), of households with ndpmpm (default: "
                       "40)")  # fmt: skip
    model.add_argument("--level-prior", choices=("learned", "uniform"),
                       help="prior of the level probabilities of components and classes: learned, "
                       "with a concentration and a mean of each variable, or uniform, as in the "
                       "papers (default: learned)")  # fmt: skip
    model.add_argument("--ordered", metavar="auto|none|A,B,..", type=ordered_type,
                       help="variables whose adjacent levels are alike, such as ages in years: "
                       "their probabilities go by bands of levels, and by levels within bands. "
                       "auto: those with more than a dozen levels that are numbers. Levels are in "
                       "the order of --levels, or of their numbers (default: auto)")  # fmt: skip
    add_groups(model)
    if "ndpmpm" in models:
        add_households(parser)
    chains = _add_chains(parser, draws=None)
    chains.add_argument("--until-rhat", metavar="R", type=number_above(1),
                        help="after those draws go on, until R-hat is at most R and the "
                        "effective sample sizes are large enough for what is reported, the risk "
                        "or the margins, and R-hat of log-likelihood at most 1.1, or the minutes "
                        f"are used up (default: {UNTIL_RHAT}, if no --draws is given)")  # fmt: skip
    chains.add_argument("--until-ess", metavar="E", type=number_above(0),
                        help="effective sample size to reach, bulk and tail, chains together "
                        "(default: 100 for each chain)")  # fmt: skip
    chains.add_argument("--max-minutes", metavar="M", type=number_above(0),
                        help="minutes of sampling, compilation and those before a --resume "
                        "included, after which to stop all the same (default: "
                        f"{DEFAULT_MINUTES:g}, or {MAX_MINUTES:g} with --until-rhat)")  # fmt: skip
    _add_processes(parser)
    output = parser.add_argument_group("output")
    if keep_parameters:
        parser.set_defaults(keep_parameters=True)
    else:
        output.add_argument("--keep-parameters", action="store_true",
                            help="put the model's arrays into posterior.nc too: 20 kB a draw and "
                            "more")  # fmt: skip
    _add_output(output)
    return output


def _add_processes(parser) -> None:
    """Add the options of runs of several processes."""
    group = parser.add_argument_group(
        "several processes", "the same command in each, on one machine or many that share the "
        "files: each runs its share of the chains, and the first writes DIR"
    )  # fmt: skip
    group.add_argument("--distributed", action="store_true",
                       help="connect with the other processes; what is not said below is what "
                       "Slurm, Open MPI or Kubernetes say")  # fmt: skip
    group.add_argument("--coordinator", metavar="HOST:PORT",
                       help="address of the first process, with a free port")  # fmt: skip
    group.add_argument("--processes", metavar="K", type=integer_type(1, 2**16),
                       help="how many there are")  # fmt: skip
    group.add_argument("--process", metavar="I", type=integer_type(0, 2**16),
                       help="which this is, from 0")  # fmt: skip


def _add_chains(parser, draws: int | None = DRAWS):
    """Add the options of chains that every command that samples has; return their group.

    `draws` is the default, or None where the run then has a target.
    """
    chains = parser.add_argument_group("chains")
    for option, default, least, most, what in (
        ("chains", 4, 1, 2**16, "chains"),
        ("warmup", 1000, 0, 2**31, "sweeps before the first draw"),
        ("draws", draws, 1, 2**31, "draws kept of each chain"),
        ("thin", 1, 1, 2**31, "sweeps per kept draw"),
        ("seed", 0, 0, 2**32, "the same seed gives the same results"),
    ):
        said = f"{DRAWS}, and then more until --until-rhat" if default is None else default
        chains.add_argument(f"--{option}", metavar="K", type=integer_type(least, most),
                            default=default, help=f"{what} (default: {said})")  # fmt: skip
    chains.add_argument("--resume", action="store_true",
                        help="go on from the checkpoint in DIR, if there is one")  # fmt: skip
    chains.add_argument("--checkpoint-seconds", metavar="S", type=seconds_type, default=10.0,
                        help="least time between checkpoints (default: 10)")  # fmt: skip
    return chains


def _add_output(output):
    """Options of what every command says and shows."""
    output.add_argument("--no-records", action="store_true",
                        help="leave single records, and what fewer than five persons share, out "
                        "of report.html, so that it can be handed outside; write no records.csv "
                        "or cells.csv")  # fmt: skip
    output.add_argument("--force", action="store_true",
                        help="replace finished results in DIR")  # fmt: skip
    output.add_argument("--progress", action="store_true",
                        help="show progress bars even where stderr is not a terminal")  # fmt: skip
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")


def flag(name: str) -> str:
    """Option of the command line that has this name in Python."""
    return f"--{name.replace('_', '-')}"


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.splitlines())
