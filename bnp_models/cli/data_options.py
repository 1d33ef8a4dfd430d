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
                      help="declared levels: columns variable and level (default: those "
                      "seen)")  # fmt: skip
    data.add_argument("--allow-identifying", action="store_true",
                      help="take columns by default that identify records, or nearly so, too: they "
                      "are refused unless --variables names them")  # fmt: skip
    add_recoding(data)
    if name in ("risk", "protect"):
        add_identifiers(data)
    if name in ("risk", "protect", "synthesize"):
        data.add_argument("--weights", metavar="COLUMN",
                          help="column of the design weights: persons of the population that a "
                          "record stands for (default: as many for each)")  # fmt: skip
    data.add_argument("--conditions", metavar="FILE",
                      help="structural zeros, for models that take them: the header names "
                      "variables, each row is a combination that cannot occur, an empty cell "
                      "leaves its variable free; a cell may have several levels: a|b, !x, <25, "
                      ">=65, 15-24")  # fmt: skip
    add_reading(data, "SAMPLE")


def add_recoding(data) -> None:
    """Add the options that make fewer levels of a column."""
    data.add_argument("--bins", metavar="A=B", type=bin_number, nargs="+", action="extend",
                      default=[],
                      help="put the numbers of column A into about B bins of as many records each; "
                      "a number that a bin's share of the records has, and labels that are no "
                      "numbers, stay as they are; synthetic values are drawn within the "
                      "bins")  # fmt: skip
    data.add_argument("--top-code", metavar="A=X", type=number_of_variable, nargs="+",
                      action="extend", default=[],
                      help="make one level, X+, of the numbers of column A from X on")  # fmt: skip
    data.add_argument("--merge-rare", metavar="K", type=integer_type(2, 2**31),
                      help="merge levels that fewer than K records have: with others of their "
                      "--groups, or with a neighbour where labels are numbers in order or "
                      "--ordered, else all of them as 'other'")  # fmt: skip


def add_groups(group) -> None:
    """Add the option of variables whose levels lie in groups."""
    group.add_argument("--groups", metavar="A=FILE", type=file_of_variable, nargs="+",
                       action="extend",
                       help="groups of the levels of column A, such as codes of fewer digits: a "
                       "CSV file with the header level,group[,group..], each group in the next "
                       "larger one. The levels of a group share strength, and levels are merged "
                       "along the groups")  # fmt: skip


def add_reading(data, what: str) -> None:
    """Add the options that say how files of records are written."""
    data.add_argument("--sep", metavar="C",
                      help=f"what is between the cells of {what}, such as ';' or '\\t' (default: "
                      "told from the file)")  # fmt: skip
    data.add_argument("--encoding", metavar="E",
                      help=f"encoding of {what}, such as cp1252 (default: told from the "
                      "file)")  # fmt: skip
    data.add_argument("--missing", metavar="X,Y,..", type=name_list,
                      help="labels that stand for a missing value, such as NA,-9,. (default: none, "
                      "only empty cells do)")  # fmt: skip


def add_conditions(commands, table: str) -> None:
    """Add the command ``conditions``; `table` says what a sample can be."""
    parser = commands.add_parser(
        "conditions",
        allow_abbrev=False,
        help="suggest structural zeros of a sample, or check some against it",
        description="Structural zeros: suggest candidates, combinations that a sample lacks and by "
        "chance should have, for a person to confirm; or list the records that break conditions.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for action, what in (
        ("suggest", "write candidates and how often they were to be expected, as a file of "
                    "conditions that is refused until somebody has confirmed each"),
        ("check", "write the records that are impossible, and why"),
    ):  # fmt: skip
        command = actions.add_parser(action, allow_abbrev=False, help=what, description=what)
        command.set_defaults(name="conditions", action=action, progress=False)
        command.add_argument("sample", metavar="SAMPLE", help=table)
        if action == "suggest":
            command.add_argument("--least", metavar="E", type=number_above(0), default=5.0,
                                 help="records that an empty combination should have by chance "
                                 "(default: 5)")  # fmt: skip
        else:
            command.add_argument("--conditions", metavar="FILE", required=True,
                                 help="structural zeros")  # fmt: skip
        command.add_argument("--out", metavar="FILE", required=True, help="CSV or Parquet file")
        data = command.add_argument_group("data")
        data.add_argument("--variables", metavar="A,B,..", type=name_list,
                          help="variables (default: all columns)")  # fmt: skip
        data.add_argument("--levels", metavar="FILE", help="declared levels")
        add_recoding(data)
        add_reading(data, "SAMPLE")
        command.add_argument("--force", action="store_true", help="replace FILE")
        command.add_argument("--quiet", action="store_true", help="print nothing but errors")
