"""Options of persons within households."""

from bnp_models.cli.argument_types import integer_type, name_list, relative_kinds


def add_household_columns(group) -> None:
    """Add the options that say which columns are of households."""
    group.add_argument("--household", metavar="COLUMN",
                       help="column that says who lives with whom")  # fmt: skip
    group.add_argument("--household-variables", metavar="A,B,..", type=name_list,
                       help="columns that are the same for all members of a household")  # fmt: skip
    group.add_argument("--roles", metavar="FILE",
                       help="file with the labels of the head, the spouse and other roles, as "
                            "words of any language or as codes, with columns role and label "
                            "(docs/household_rules.md); census-relationships uses it, and so does "
                            "the search for the head")  # fmt: skip


def add_households(parser):
    """Add the options of the models of persons within households."""
    group = parser.add_argument_group(
        "ndpmpm",
        "persons within households; the file has one person in each row, and the "
        "synthetic households have the sizes of the sample's",
    )
    add_household_columns(group)
    group.add_argument("--rules", metavar="RULES",
                       help="rules for households: census-relationships, a YAML file (.yaml), "
                            "which is safe whoever wrote it because nothing in it is run, or a "
                            "Python file (.py) that defines `rules`, which is run as code "
                            "(docs/household_rules.md)")  # fmt: skip
    group.add_argument("--head", choices=("auto", "yes", "no"), default="auto",
                       help="treat the variables of the head as variables of the household. auto: "
                            "do so if every household has exactly one person with a usual label "
                            "such as Householder, or with a label of --roles "
                            "(default: auto)")  # fmt: skip
    group.add_argument("--member-components", metavar="S", type=integer_type(2, 2**12),
                       help="number of classes of members in each class of households "
                            "(default: 15)")  # fmt: skip
    group.add_argument("--relative", metavar="A,B,..", type=relative_kinds,
                       help="variables that are modelled relative to the value of the head: by the "
                            "difference, if the labels are numbers in order (age), otherwise by "
                            "whether the value is the same (race); A:difference or A:same "
                            "overrides this. Couples are then similar in age without a separate "
                            "class for each age")  # fmt: skip
    group.add_argument("--impossible-weight", metavar="W", type=integer_type(1, 1001),
                       help="cap-and-weight, an approximation: draw only one in W impossible "
                            "households, and give each the weight W (default: "
                            "1, exact)")  # fmt: skip
    group.add_argument("--sizes", choices=("random", "given"),
                       help="random: the sizes of households are part of the model; given: they "
                            "are fixed by the design of the sample (default: random)")  # fmt: skip
