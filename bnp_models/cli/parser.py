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
        help="print a script that makes a shell complete commands and options; save it where your "
        "shell looks for such scripts",
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
                             help="TOML file with options, either by their names or in one table "
                                  "for each command; options on the command line override those of "
                                  "the file")  # fmt: skip
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
                        help="number of persons in the population, including those in "
                             "the sample")  # fmt: skip
    parser.add_argument("--validate", metavar="SPLITS", type=integer_type(1, 101), nargs="?",
                        const=3,
                        help="also fit the model to this many random quarters of the sample, and "
                             "compare each estimate with the truth in the whole sample; each "
                             "quarter takes at most as long as the main run (default without a "
                             "number: 3)")  # fmt: skip
    parser.add_argument("--ties", choices=("on", "sensitivity", "off"), default="on",
                        help="whether the population's cell counts may vary more than the model "
                             "alone allows (overdispersion), by a second layer, the layer for "
                             "ties. on: tau_1, tau_2 and the risks of records are computed with "
                             "this layer; sensitivity: they are computed without it, and the "
                             "results with it are shown beside them; off: it is not used (default: "
                             "on)")  # fmt: skip
    parser.add_argument("--what-if", metavar="SPEC", nargs="+", action="extend", default=[],
                        help="also estimate the risk of coarser key variables, from the same "
                             "draws. Each SPEC is drop:A,B (leave these variables out), keep:A,B "
                             "(leave all others out), merge:A=X+Y (merge these levels), group:A or "
                             "group:A=2 (replace levels by their --groups, or by the second layer "
                             "of groups), or several of these joined by semicolons. The risk "
                             "without each single variable is always estimated")  # fmt: skip
    parser.add_argument("--keys", metavar="A,B,..", type=name_list, action="append",
                        default=[],
                        help="a set of key variables for which the risk is estimated too; may be "
                             "given more than once. The model is fitted to --variables (default: "
                             "all variables that are in one of these sets)")  # fmt: skip
    parser.add_argument("--all-records", action="store_true",
                        help="write all records to records.csv, and not only the sample uniques, "
                             "with the number f of records that have the same values. If f is not "
                             "1, r1 is 0; r2 is the expected value of 1/F for "
                             "every record")  # fmt: skip
    parser.add_argument("--baselines", action="store_true",
                        help="also compute classical estimates, which takes a few seconds: the "
                             "risk of Benedetti and Franconi, and Poisson log-linear models with "
                             "main effects, with all two-way interactions, and with selected "
                             "two-way interactions; cells.csv then has their "
                             "risks too")  # fmt: skip
    add_limits(parser)
    output = _add_common(parser, "risk", keep_parameters=False)
    add_filing(output)
    add_spreadsheet(output)
    _add_cells(parser)


def _add_cells(parser):
    """Add the options of the models of cells."""
    cells = parser.add_argument_group(
        "polettini-stander",
        "these models estimate the risk of every cell, and write cells.csv instead of records.csv",
    )
    cells.add_argument("--cells", metavar="K", type=integer_type(1, 2**62),
                       help="number of cells that a person can belong to (default: all "
                            "combinations of levels)")  # fmt: skip
    cells.add_argument("--hyperparameters", choices=("empirical-bayes", "full-bayes", "fixed"),
                       help="empirical-bayes: maximise the likelihood; full-bayes: sample them by "
                            "NUTS; fixed: use the values given below (default: fixed if a value is "
                            "given below, otherwise empirical-bayes, or full-bayes if the "
                            "likelihood has no maximum)")  # fmt: skip
    for name, what in (
        ("a", "first parameter of the sampling fractions, which are Beta(a, b) in model 1 (default "
              "with fixed: 0.86) and Beta(a phat, a (1 - phat)) in model 2 (default with "
              "fixed: 80)"),
        ("b", "second parameter of the sampling fractions in model 1 (default with fixed: 80)"),
        ("gamma", "share of the cells that can be sampled, in model 2 (default with fixed: 0.7)"),
    ):  # fmt: skip
        cells.add_argument(f"--{name}", metavar="X", type=number_above(0), help=what)
    cells.add_argument("--empty-phat", metavar="P:W,..", type=mixture_type,
                       help="sampling fractions of the empty cells in model 2, each with the share "
                            "of the empty cells that have it, such as 0.0034:0.86,0.028:0.14 "
                            "(default: the sampling fraction of the whole sample)")  # fmt: skip


def _add_synthesize(commands) -> None:
    """Add the command ``synthesize``."""
    parser = _add_command(
        commands,
        "synthesize",
        help="make completely synthetic data sets",
        description="Make synthetic data sets with the columns and labels of a sample of "
        "categorical microdata. The sample may have missing values; the synthetic data "
        "have none, and no synthetic record is in a structural zero.",
        epilog="Writes synthetic_1.csv and so on, run.json, posterior.nc and report.html to DIR. "
        "Only the synthetic files are meant for release.",
    )
    _add_format(parser)
    parser.add_argument("--datasets", metavar="M", type=integer_type(1, 10**6), default=5,
                        help="number of data sets (default: 5)")  # fmt: skip
    parser.add_argument("--method", choices=("predictive", "balanced", "calibrated"),
                        default="predictive",
                        help="predictive: each file is drawn from the posterior predictive "
                             "distribution, with its own draw of the parameters. balanced: the "
                             "files follow the mean of many draws, and groups of similar "
                             "combinations have nearly the expected number of records. calibrated: "
                             "like balanced, and the one- and two-way tables are brought close to "
                             "those of the sample. In this order, files are closer to the sample, "
                             "and more of its unique combinations occur in them (default: "
                             "predictive)")  # fmt: skip
    parser.add_argument("--keep", metavar="A,B,..", type=name_list, default=[],
                        help="for nplcm and tnplcm: every record of the sample keeps its values of "
                             "these columns, and the other columns are drawn given them (partially "
                             "synthetic files)")  # fmt: skip
    parser.add_argument("--carry", metavar="A,B,..", type=name_list, default=[],
                        help="with --keep: more columns that are copied but not modelled; refused "
                             "if they reveal whose records these are")  # fmt: skip
    parser.add_argument("--rows", metavar="N", type=integer_type(1, 2**31),
                        help="number of records in each data set (default: as many as the sample "
                             "has)")  # fmt: skip
    # The evaluation of what an intruder can learn reads the parameters.
    _add_common(parser, "synthesize", keep_parameters=True)


def _add_impute(commands) -> None:
    """Add the command ``impute``."""
    parser = _add_command(
        commands,
        "impute",
        help="complete missing values, several times",
        description="Complete the missing values (empty cells) of a sample of categorical "
        "microdata several times. The differences between the completed data sets show "
        "the uncertainty. No completed record is in a structural zero.",
        epilog="Writes imputed_1.csv and so on, run.json, posterior.nc and report.html to DIR.",
    )
    _add_format(parser)
    parser.add_argument("--datasets", metavar="M", type=integer_type(1, 10**6), default=5,
                        help="number of data sets, each from a different draw of the parameters "
                             "(default: 5)")  # fmt: skip
    _add_common(parser, "impute", keep_parameters=False)


def _add_format(parser) -> None:
    """Add the option of the files' format."""
    parser.add_argument("--format", choices=FORMATS, default="csv",
                        help="format of the files: csv, parquet, dta (Stata) or sav (SPSS). dta "
                             "and sav files have the value labels of SAMPLE if it has any; a "
                             "column name that the format does not allow is changed and becomes "
                             "the label of the column (default: csv)")  # fmt: skip


def _add_evaluate(commands) -> None:
    """Add the command ``evaluate``."""
    parser = commands.add_parser(
        "evaluate",
        allow_abbrev=False,
        help="compare synthetic data sets with their original",
        description="Compare synthetic data sets with their original: the proportions in all "
        "tables of one, two and three variables with the overlap of their intervals, "
        "whether the records can be told apart (pMSE), which tables fit worst, and how "
        "many unique combinations occur again. A table counts the records that have "
        "values of all its variables.",
        epilog="Writes evaluation.json and report.html to DIR, and with --posterior records.csv.",
    )
    parser.set_defaults(name="evaluate", resume=False)
    parser.add_argument("original", metavar="ORIGINAL", help=_TABLE)
    parser.add_argument("synthetic", metavar="SYNTHETIC", nargs="+",
                        help="files with the columns and labels of ORIGINAL")  # fmt: skip
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results")
    data = parser.add_argument_group("data")
    data.add_argument("--variables", metavar="A,B,..", type=name_list,
                      help="variables to compare (default: all columns of ORIGINAL)")  # fmt: skip
    data.add_argument("--levels", metavar="FILE",
                      help="file that declares the levels, with columns variable and level "
                           "(default: the levels that ORIGINAL has; other labels "
                           "are refused)")  # fmt: skip
    add_recoding(data)
    data.add_argument("--changes", metavar="FILE",
                      help="changes.json of protect, if SYNTHETIC is its protected.csv: ORIGINAL "
                           "is recoded in the same way, so that only the effect of the suppressed "
                           "values is measured")  # fmt: skip
    add_reading(data, "ORIGINAL, --population and --holdout")
    data.add_argument("--conditions", metavar="FILE",
                      help="structural zeros, as for synthesize; records that break a condition "
                           "are counted")  # fmt: skip
    data.add_argument("--population", metavar="FILE",
                      help="file of the whole population, if it is known; its proportions are "
                           "compared too")  # fmt: skip
    data.add_argument("--holdout", metavar="FILE",
                      help="records of the population from which the files were not made; the "
                           "command then tests whether synthetic records are closer to ORIGINAL "
                           "than to these records")  # fmt: skip
    data.add_argument("--keys", metavar="A,B,..", type=name_list, action="append", default=[],
                      help="variables that an intruder may know; the command then counts "
                           "replicated uniques, and measures what the files disclose about the "
                           "other variables (DiSCO); may be given more than once")  # fmt: skip
    data.add_argument("--targets", metavar="A,B,..", type=name_list,
                      help="variables that the intruder would like to know (default: all variables "
                           "that are not keys)")  # fmt: skip
    data.add_argument("--trees", action="store_true",
                      help="also tell records apart by classification trees, which find "
                           "interactions of any order (needs scikit-learn)")  # fmt: skip
    data.add_argument("--combining", choices=("partially", "fully"), default="partially",
                      help="rule for combining the estimates from the files: partially is for "
                           "partially synthetic data and is also right for the files of "
                           "synthesize; fully is for fully synthetic data of other software "
                           "(default: partially)")  # fmt: skip
    data.add_argument("--seed", metavar="K", type=integer_type(0, 2**32), default=0,
                      help="seed for the random choice of tables, if there are too many (default: "
                           "0)")  # fmt: skip
    group = parser.add_argument_group("persons within households, one person a row")
    add_household_columns(group)
    group.add_argument("--rules", metavar="RULES",
                       help="rules for households, as for synthesize: census-relationships, a YAML "
                            "file (safe), or a Python file, which is run as code; households that "
                            "break a rule are counted")  # fmt: skip
    group.add_argument("--quantities", metavar="RULES",
                       help="statements about households, in a YAML or Python file like that of "
                            "--rules; the command compares how often each statement "
                            "is true")  # fmt: skip
    attack = parser.add_argument_group(
        "attack risk", "what an intruder who knows all records but one can learn about that record"
    )
    attack.add_argument("--posterior", metavar="FILE",
                        help="the posterior.nc that synthesize wrote with the files; the data "
                             "options above must be the same as for that run")  # fmt: skip
    attack.add_argument("--refit", action="store_true",
                        help="run the chains again with each file added to ORIGINAL; this is far "
                             "more precise, and takes as long as synthesize for "
                             "each file")  # fmt: skip
    attack.add_argument("--target", choices=("household", "person"),
                        help="for persons within households: the unit about which the intruder "
                             "guesses a value (default: household)")  # fmt: skip
    output = parser.add_argument_group("output")
    _add_output(output)


def _add_compare(commands) -> None:
    """Add the command ``compare``."""
    parser = _add_command(
        commands,
        "compare",
        help="compare how well several models fit a sample",
        description="Compare models of a sample of categorical microdata: how well each predicts "
        "records that it has not seen, whether its replicates look like the sample, and its risk.",
        epilog="Writes compare.json, run.json and report.html to DIR. Chains are run on the whole "
        "sample and, for each fold, without the records held out.",
    )
    parser.add_argument("--models", metavar="M,M,..", type=name_list, default=["hdp", "nplcm"],
                        help=f"models to compare, from {', '.join(MODELS_OF['compare'])}; each may "
                             "have options, as in hdp:level-prior=uniform or "
                             "nplcm:components=20:ordered=age+income "
                             "(default: hdp,nplcm)")  # fmt: skip
    parser.add_argument("--population-size", metavar="N", type=integer_type(1, 2**53),
                        help="number of persons in the population; the risk is then "
                             "compared too")  # fmt: skip
    parser.add_argument("--parts", metavar="K", type=integer_type(2, 2**31), default=5,
                        help="number of random parts that the sample is divided into "
                             "(default: 5)")  # fmt: skip
    parser.add_argument("--folds", metavar="F", type=integer_type(1, 2**31), default=1,
                        help="number of parts that are held out, one at a time; F = K is a full "
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
        help="recode and suppress until the risk of a sample is within limits",
        description="Protect a sample of categorical microdata: merge levels and drop variables, "
        "and then suppress values of single records, until the estimated risk is "
        "within the limits. A greedy search keeps the loss of information small.",
        epilog="Writes protected.csv, changes.json, run.json and report.html to DIR. Only "
        "protected.csv is meant for release; its columns that are not key variables are "
        "copied from SAMPLE.",
    )
    parser.add_argument("--population-size", metavar="N", type=integer_type(1, 2**53),
                        required=True,
                        help="number of persons in the population, including those in "
                             "the sample")  # fmt: skip
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
                           help="for hdp: shared is one alpha for all records, record is one alpha "
                                "for each record, and hierarchical is one alpha for each record "
                                "with an unknown rate (default: shared)")  # fmt: skip
        model.add_argument("--augmentation", choices=("boxes", "simulation"),
                           help="for hdp and mixed-membership with --conditions: how records of "
                                "the impossible region are drawn (default: boxes, or simulation if "
                                "there are too many boxes)")  # fmt: skip
        model.add_argument("--not-applicable", action="store_const", const=True,
                           help="for hdp and mixed-membership with --conditions: leave out of each "
                                "record the values that another variable determines")  # fmt: skip
    model.add_argument("--components", metavar="K", type=integer_type(2, 2**16),
                       help="number of latent classes of nplcm and tnplcm (default: 50), or of "
                            "profiles of mixed-membership (default: 20)" if "hdp" in models else
                       "number of latent classes (default: 50); with ndpmpm, of classes of "
                       "households (default: 40)")  # fmt: skip
    model.add_argument("--level-prior", choices=("learned", "uniform"),
                       help="prior of the level probabilities in components and classes: learned "
                            "estimates a mean and a concentration for each variable; uniform is "
                            "the prior of the papers (default: learned)")  # fmt: skip
    model.add_argument("--level-shape", metavar="X", type=number_above(0),
                       help="Dirichlet shape of the level probabilities, the same for all levels, "
                            "in place of --level-prior")  # fmt: skip
    of_cells = ("; with polettini-stander, shape parameter of the cell means (default with "
                "--hyperparameters fixed, as in the paper: 0.92 in model 1, 0.1 in model "
                "2)") if "polettini-stander-1" in models else ""  # fmt: skip
    model.add_argument("--alpha", metavar="X", type=number_above(0),
                       help="fix the concentration of the weights of components and classes, which "
                            f"is otherwise drawn{of_cells}")  # fmt: skip
    model.add_argument("--ordered", metavar="auto|none|A,B,..", type=ordered_type,
                       help="variables whose neighbouring levels are similar, such as ages in "
                            "years; their level probabilities are modelled by bands of levels, and "
                            "by levels within bands. auto: variables with more than a dozen "
                            "numeric levels. The order of the levels is that of --levels, or that "
                            "of their numbers (default: auto)")  # fmt: skip
    add_groups(model)
    if "ndpmpm" in models:
        add_households(parser)
    chains = _add_chains(parser, draws=None)
    chains.add_argument("--until-rhat", metavar="R", type=number_above(1),
                        help="after --draws, continue until R-hat is at most R and the effective "
                             "sample sizes are large enough for everything that is reported (the "
                             "risk, or the margins) and R-hat of the log-likelihood is at most "
                             f"1.1, or until --max-minutes have passed (default: {UNTIL_RHAT}, if "
                             "no --draws is given)")  # fmt: skip
    chains.add_argument("--until-ess", metavar="E", type=number_above(0),
                        help="effective sample size to reach, bulk and tail, of all chains "
                             "together (default: 100 for each chain)")  # fmt: skip
    chains.add_argument("--max-minutes", metavar="M", type=number_above(0),
                        help="stop after this many minutes even if the chains do not agree yet; "
                             "compilation and the minutes before a --resume count too (default: "
                             f"{DEFAULT_MINUTES:g}, or {MAX_MINUTES:g} "
                             "with --until-rhat)")  # fmt: skip
    _add_processes(parser)
    output = parser.add_argument_group("output")
    if keep_parameters:
        parser.set_defaults(keep_parameters=True)
    else:
        output.add_argument("--keep-parameters", action="store_true",
                            help="also write the arrays of the model to posterior.nc; this takes "
                                 "20 kB or more for each draw")  # fmt: skip
    _add_output(output)
    return output


def _add_processes(parser) -> None:
    """Add the options of runs of several processes."""
    group = parser.add_argument_group(
        "several processes", "start the same command in each process, on one machine or on several "
                             "that share the files; each process runs its share of the chains, and "
                             "the first one writes DIR"
    )  # fmt: skip
    group.add_argument("--distributed", action="store_true",
                       help="connect with the other processes; options that are not given below "
                            "are taken from Slurm, Open MPI or Kubernetes")  # fmt: skip
    group.add_argument("--coordinator", metavar="HOST:PORT",
                       help="address of the first process, with a port that is free")  # fmt: skip
    group.add_argument("--processes", metavar="K", type=integer_type(1, 2**16),
                       help="number of processes")  # fmt: skip
    group.add_argument("--process", metavar="I", type=integer_type(0, 2**16),
                       help="number of this process, counted from 0")  # fmt: skip


def _add_chains(parser, draws: int | None = DRAWS):
    """Add the options of chains that every command that samples has; return their group.

    `draws` is the default, or None where the run then has a target.
    """
    chains = parser.add_argument_group("chains")
    for option, default, least, most, what in (
        ("chains", 4, 1, 2**16, "chains"),
        ("warmup", 1000, 0, 2**31, "sweeps before the first draw"),
        ("draws", draws, 1, 2**31, "draws kept from each chain"),
        ("thin", 1, 1, 2**31, "sweeps per kept draw"),
        ("seed", 0, 0, 2**32, "the same seed gives the same results"),
    ):
        said = f"{DRAWS}, then more until --until-rhat is met" if default is None else default
        chains.add_argument(f"--{option}", metavar="K", type=integer_type(least, most),
                            default=default, help=f"{what} (default: {said})")  # fmt: skip
    chains.add_argument("--resume", action="store_true",
                        help="continue from the checkpoint in DIR, if there is one")  # fmt: skip
    chains.add_argument("--checkpoint-seconds", metavar="S", type=seconds_type, default=10.0,
                        help="minimum time between checkpoints (default: 10)")  # fmt: skip
    return chains


def _add_output(output):
    """Options of what every command says and shows."""
    output.add_argument("--no-records", action="store_true",
                        help="leave single records, and everything that fewer than five persons "
                             "share, out of report.html, so that it can be given to people who may "
                             "not see the sample; do not write records.csv "
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
