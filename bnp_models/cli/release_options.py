"""Options of the command line for limits of the risk, for filing, and for protected files."""

from bnp_models.cli.argument_types import importance_type, number_at_least, share_type


def add_limits(parser) -> None:
    """Add the limits that a verdict is given by."""
    group = parser.add_argument_group(
        "limits", "the command says whether a release meets these limits"
    )
    group.add_argument("--max-tau1", metavar="X", type=number_at_least(0),
                       help="limit for the number of population uniques among the records. The "
                            "verdict is yes if the whole 95%% interval of tau_1 is within the "
                            "limit, no if its mean is above the limit, and unknown otherwise, or "
                            "if tau_1 cannot be used")  # fmt: skip
    group.add_argument("--max-risk", metavar="P", type=share_type,
                       help="limit, from 0 to 1, for the probability of each single record to be "
                            "unique in the population (r1)")  # fmt: skip
    group.add_argument("--strict", action="store_true",
                       help="end with exit code 3 if the verdict is not yes, if the chains have "
                            "not converged on tau_1, or if the checks find a misfit")  # fmt: skip


def add_identifiers(data) -> None:
    """Add the option that names the column of identifiers."""
    data.add_argument("--id", metavar="COLUMN",
                      help="column that identifies records; it is not a key variable, and its "
                           "value is written with each record in the results")  # fmt: skip


def add_filing(output) -> None:
    """Add what a page is filed by."""
    output.add_argument("--title", metavar="TEXT", help="title of the page, for your files")
    output.add_argument("--author", metavar="TEXT", help="author named on the page, for your files")


def add_spreadsheet(output) -> None:
    """Add the options of the table of records or cells."""
    output.add_argument("--format", choices=("csv", "parquet"), default="csv",
                        help="format of the table of records or cells (default: csv)")  # fmt: skip
    output.add_argument("--bom", action="store_true",
                        help="begin records.csv or cells.csv with a byte order mark, so that Excel "
                             "recognises UTF-8")  # fmt: skip


def add_protection(parser) -> None:
    """Add the options of ``protect``."""
    group = parser.add_argument_group("protection")
    group.add_argument("--recode", metavar="SPEC", nargs="+", action="extend", default=[],
                       help="recodings that are made in any case, before the search for others: "
                            "drop:A,B and merge:A=X+Y, as for --what-if of risk")  # fmt: skip
    group.add_argument("--suppress", metavar="SHARE", type=share_type, default=0.05,
                       help="largest share of the records in which values may be suppressed; "
                            "variables are recoded until this share is enough. 0: only recode; 1: "
                            "recode nothing beyond --recode, if suppression alone can meet the "
                            "limits (default: 0.05)")  # fmt: skip
    group.add_argument("--importance", metavar="A=W", type=importance_type, nargs="+",
                       action="extend", default=[],
                       help="weight of the information lost in a variable: with A=2, a bit lost in "
                            "A counts as two bits (default: 1 for each variable)")  # fmt: skip
    group.add_argument("--refit", action="store_true",
                       help="run new chains on the recoded table, and estimate the risk of the "
                            "protected file from these too; this takes as long again")  # fmt: skip
