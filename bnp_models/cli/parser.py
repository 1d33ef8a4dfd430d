"""Parser of the command ``bnp-models``."""

import shtab

from bnp_models.cli.commands import ACTIONS, COMMANDS
from bnp_models.cli.options import Parser
from bnp_models.version import __version__


def make_parser() -> Parser:
    """Parser of all commands."""
    parser = Parser(
        prog="bnp-models", description="Bayesian non-parametric models for categorical microdata."
    )
    parser.add_argument("--version", action="version", version=f"bnp-models {__version__}")
    shtab.add_argument_to(
        parser,
        "--print-completion",
        help="print a script with which a shell completes commands and options; save it where "
        "your shell looks for such scripts",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = parser.commands[command.name] = commands.add_parser(
            command.name, help=command.help, description=command.description, epilog=command.epilog
        )
        own.offer(command)
        own.add_argument("--config", metavar="FILE",
                         help="TOML file with options, either without a table or in one table for "
                              "each command. Options on the command line override those of the "
                              "file")  # fmt: skip
    conditions = parser.commands["conditions"] = commands.add_parser(
        "conditions",
        help="suggest structural zeros from a sample, or check a sample against structural zeros",
        description="Suggest candidates for structural zeros: combinations that do not occur in "
        "the sample although some records would be expected to have them. A person has to confirm "
        "each candidate. Or list the records of a sample that are impossible by given structural "
        "zeros.",
    )
    actions = conditions.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, command in ACTIONS.items():
        actions.add_parser(name, help=command.description, description=command.description).offer(
            command
        )
    return parser
