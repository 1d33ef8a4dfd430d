"""Options of persons within households."""

from bnp_models.cli.argument_types import integer_type, name_list, relative_kinds


def add_household_columns(group) -> None:
    """Add the options that say which columns are of households."""
    group.add_argument("--household", metavar="COLUMN",
                       help="column that says who lives with whom")  # fmt: skip
    group.add_argument("--household-variables", metavar="A,B,..", type=name_list,
                       help="columns that are the same for all members of a household")  # fmt: skip
    group.add_argument("--roles", metavar="FILE",
                       help="labels of the head, the spouse and others, in any language or coded, "
                       "for census-relationships and for finding the head: columns role and label "
                       "(docs/household_rules.md)")  # fmt: skip


def add_households(parser):
    """Add the options of the models of persons within households."""
    group = parser.add_argument_group(
        "ndpmpm", "persons within households; one person a row, households of the sample's sizes"
    )
    add_household_columns(group)
    group.add_argument("--rules", metavar="RULES",
                       help="what every household keeps: census-relationships, a YAML file "
                       "(.yaml), which is only read and so safe whoever wrote it, or a Python "
                       "file (.py) that defines `rules`, which is run as code "
                       "(docs/household_rules.md)")  # fmt: skip
    group.add_argument("--head", choices=("auto", "yes", "no"), default="auto",
                       help="let the head's variables be the household's: auto, where every "
                       "household has one with a usual label such as Householder, or a label of "
                       "--roles (default: auto)")  # fmt: skip
    group.add_argument("--member-components", metavar="S", type=integer_type(2, 2**12),
                       help="classes of members in each class of households (default: "
                       "15)")  # fmt: skip
    group.add_argument("--relative", metavar="A,B,..", type=relative_kinds,
                       help="variables that members have relative to the head's: by the "
                       "difference, where the labels are numbers in order (age), else by whether "
                       "it is the same (race); age:difference or age:same says which. Couples "
                       "then are alike without a class for each age")  # fmt: skip
    group.add_argument("--impossible-weight", metavar="W", type=integer_type(1, 1001),
                       help="cap-and-weight, an approximation: draw a W-th of the impossible "
                       "households and let each stand for W (default: 1, exact)")  # fmt: skip
    group.add_argument("--sizes", choices=("random", "given"),
                       help="whether households' sizes are part of the model, or fixed by the "
                       "design of the sample (default: random)")  # fmt: skip
