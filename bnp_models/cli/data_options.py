"""Options that say what is read, and what becomes of its levels."""

from bnp_models.cli.argument_types import bin_number, integer_type, name_list, number_of_variable


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
    if name in ("risk", "synthesize"):
        data.add_argument("--weights", metavar="COLUMN",
                          help="column of the design weights: persons of the population that a "
                          "record stands for (default: as many for each)")  # fmt: skip
    data.add_argument("--conditions", metavar="FILE",
                      help="structural zeros, for models that take them: the header names "
                      "variables, each row is a combination that cannot occur, an empty cell "
                      "leaves its variable free")  # fmt: skip
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
                      help="merge levels that fewer than K records have: with a neighbour where "
                      "labels begin with numbers or are --ordered, else all of them as "
                      "'other'")  # fmt: skip


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
