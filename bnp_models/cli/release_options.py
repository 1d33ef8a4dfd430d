"""Options of the command line for limits of the risk, for filing, and for protected files."""

from bnp_models.cli.argument_types import importance_type, number_at_least, share_type


def add_limits(parser) -> None:
    """Add the limits that a verdict is given by."""
    group = parser.add_argument_group("limits", "by which a release is judged")
    group.add_argument("--max-tau1", metavar="X", type=number_at_least(0),
                       help="most population uniques that may be among the records: the verdict is "
                       "no where their expected number, the mean of tau_1, is above it, yes where "
                       "the whole 95%% interval is within it, else unknown; and unknown where "
                       "tau_1 cannot be used")  # fmt: skip
    group.add_argument("--max-risk", metavar="P", type=share_type,
                       help="largest probability, from 0 to 1, that any single record may have to "
                       "be unique in the population (r1)")  # fmt: skip
    group.add_argument("--strict", action="store_true",
                       help="end with exit code 3 where the verdict is not yes, or the chains have "
                       "not converged on tau_1, or the checks see a misfit")  # fmt: skip


def add_identifiers(data) -> None:
    """Add the option that names the column of identifiers."""
    data.add_argument("--id", metavar="COLUMN",
                      help="column that identifies records: no key variable, and told with each "
                      "record that is named")  # fmt: skip


def add_filing(output) -> None:
    """Add what a page is filed by."""
    output.add_argument("--title", metavar="TEXT", help="of the page, for filing")
    output.add_argument("--author", metavar="TEXT", help="named on the page, for filing")


def add_spreadsheet(output) -> None:
    """Add the options of the table of records or cells."""
    output.add_argument("--format", choices=("csv", "parquet"), default="csv",
                        help="of the table of records or cells (default: csv)")  # fmt: skip
    output.add_argument("--bom", action="store_true",
                        help="begin records.csv or cells.csv with a byte order mark, by which "
                        "Excel knows UTF-8")  # fmt: skip


def add_protection(parser) -> None:
    """Add the options of ``protect``."""
    group = parser.add_argument_group("protection")
    group.add_argument("--recode", metavar="SPEC", nargs="+", action="extend", default=[],
                       help="recodings that are made in any case, before others are looked for: "
                       "drop:A,B and merge:A=X+Y, as --what-if of risk has them")  # fmt: skip
    group.add_argument("--suppress", metavar="SHARE", type=share_type, default=0.05,
                       help="share of the records in which values may be suppressed, at the most; "
                       "variables are recoded until that is enough. 0: recoding only, 1: no more "
                       "recoding than --recode, if suppression can meet the limits (default: "
                       "0.05)")  # fmt: skip
    group.add_argument("--importance", metavar="A=W", type=importance_type, nargs="+",
                       action="extend", default=[],
                       help="what the information of a variable is worth: with A=2 a bit of A "
                       "counts as two (default: 1 each)")  # fmt: skip
    group.add_argument("--refit", action="store_true",
                       help="run new chains on the recoded table, and estimate the risk of the "
                       "protected file from these too: takes as long again")  # fmt: skip
