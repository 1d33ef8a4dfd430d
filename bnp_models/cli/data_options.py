"""Options that say what is read, and what becomes of its levels."""

from bnp_models.cli.argument_types import (
    bin_number,
    file_of_variable,
    integer_type,
    name_list,
    number_above,
    number_of_variable,
)
from bnp_models.cli.release_options import add_identifiers


def add_data(parser, name: str) -> None:
    """Add the options that say what a command that samples reads."""
    data = parser.add_argument_group("data")
    data.add_argument("--variables", metavar="A,B,..", type=name_list,
                      help="variables to use and to write (default: all columns)"
                      if name in ("synthesize", "impute") else
                      "key variables (default: all columns)")  # fmt: skip
    data.add_argument("--levels", metavar="FILE",
                      help="file that declares the levels, with columns variable and level "
                           "(default: the levels that occur in SAMPLE)")  # fmt: skip
    data.add_argument("--allow-identifying", action="store_true",
                      help="allow columns that identify records, or nearly do; without this option "
                           "they are refused unless --variables names them")  # fmt: skip
    add_recoding(data)
    if name != "compare":
        data.add_argument("--keep-recoding", action="store_true",
                          help="also write recoding.csv, which says what became of each level, for "
                               "--recode-by")  # fmt: skip
    if name in ("risk", "protect"):
        add_identifiers(data)
    if name in ("risk", "protect", "synthesize"):
        data.add_argument("--weights", metavar="COLUMN",
                          help="column of the design weights: the number of persons of the "
                               "population that a record stands for (default: the same number for "
                               "every record)")  # fmt: skip
    data.add_argument("--conditions", metavar="FILE",
                      help="file of structural zeros, for models that take them: the header names "
                           "variables, and each row is a combination that cannot occur; an empty "
                           "cell means any value; a cell may stand for several levels: a|b, !x, "
                           "<25, >=65, 15-24")  # fmt: skip
    add_reading(data, "SAMPLE")


def add_recoding(data) -> None:
    """Add the options that make fewer levels of a column."""
    data.add_argument("--bins", metavar="A=B", type=bin_number, nargs="+", action="extend",
                      default=[],
                      help="put the numbers of column A into about B bins with equally many "
                           "records. A number that fills a bin by itself stays a level of its own, "
                           "and so do labels that are not numbers; synthetic values are drawn "
                           "within the bins")  # fmt: skip
    data.add_argument("--top-code", metavar="A=X", type=number_of_variable, nargs="+",
                      action="extend", default=[],
                      help="replace all numbers of column A that are X or larger by one "
                           "level, X+")  # fmt: skip
    data.add_argument("--merge-rare", metavar="K", type=integer_type(2, 2**31),
                      help="merge levels that fewer than K records have: with other levels of "
                           "their --groups; or with a neighbouring level, if the labels are "
                           "numbers in order or the variable is --ordered; otherwise all of them "
                           "into the level 'other'")  # fmt: skip
    data.add_argument("--recode-by", metavar="FILE",
                      help="recode as this file says, such as recoding.csv of an earlier run "
                           "(--keep-recoding): its columns are variable, level and becomes. A row "
                           "with a variable alone drops it, and a level such as <25, '25 to <50' "
                           "or >=85 stands for the numbers without a row")  # fmt: skip


def add_groups(group) -> None:
    """Add the option of variables whose levels lie in groups."""
    group.add_argument("--groups", metavar="A=FILE", type=file_of_variable, nargs="+",
                       action="extend",
                       help="CSV file with groups of the levels of column A, such as shorter codes "
                            "of occupations; its header is level,group[,group..], from the "
                            "smallest groups to the largest. Estimates for a level use the other "
                            "levels of its group, and levels are merged along "
                            "the groups")  # fmt: skip


def add_reading(data, what: str) -> None:
    """Add the options that say how files of records are written."""
    data.add_argument("--sep", metavar="C",
                      help=f"character between the cells of {what}, such as ';' or '\\t' (default: "
                           "detected)")  # fmt: skip
    data.add_argument("--encoding", metavar="E",
                      help=f"encoding of {what}, such as cp1252 (default: detected)")  # fmt: skip
    data.add_argument("--missing", metavar="X,Y,..", type=name_list,
                      help="labels that stand for a missing value, such as NA,-9,. (default: only "
                           "empty cells are missing values)")  # fmt: skip


def add_conditions(commands, table: str) -> None:
    """Add the command ``conditions``; `table` says what a sample can be."""
    parser = commands.add_parser(
        "conditions",
        allow_abbrev=False,
        help="suggest structural zeros from a sample, or check a sample against structural zeros",
        description="Suggest candidates for structural zeros, which a person has to confirm: "
        "combinations that do not occur in the sample but should occur by chance. Or "
        "list the records that break given conditions.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for action, what in (
        ("suggest", "write candidates with their expected numbers of records to a file of "
                    "conditions; the other commands refuse this file until a person has confirmed "
                    "each candidate"),
        ("check", "write the records that are impossible, and the conditions that they break"),
    ):  # fmt: skip
        command = actions.add_parser(action, allow_abbrev=False, help=what, description=what)
        command.set_defaults(name="conditions", action=action, progress=False)
        command.add_argument("sample", metavar="SAMPLE", help=table)
        if action == "suggest":
            command.add_argument("--least", metavar="E", type=number_above(0), default=5.0,
                                 help="suggest combinations that should have at least this many "
                                      "records by chance, but have none (default: 5)")  # fmt: skip
        else:
            command.add_argument("--conditions", metavar="FILE", required=True,
                                 help="structural zeros")  # fmt: skip
        command.add_argument("--out", metavar="FILE", required=True, help="CSV or Parquet file")
        data = command.add_argument_group("data")
        data.add_argument("--variables", metavar="A,B,..", type=name_list,
                          help="variables (default: all columns)")  # fmt: skip
        data.add_argument(
            "--levels",
            metavar="FILE",
            help="file that declares the levels, with columns variable and level",
        )
        add_recoding(data)
        add_reading(data, "SAMPLE")
        command.add_argument("--force", action="store_true", help="replace FILE")
        command.add_argument("--quiet", action="store_true", help="print nothing but errors")
