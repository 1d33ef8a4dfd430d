"""Commands as frozen objects of their options, and the help pages that are made of these."""

import re
from dataclasses import FrozenInstanceError, fields, is_dataclass
from types import SimpleNamespace

import pytest

from bnp_models.cli.commands import ACTIONS, COMMANDS
from bnp_models.cli.main import main
from bnp_models.cli.options import UsageError, flag, options_of, parse, read, values_of
from bnp_models.cli.parser import make_parser
from bnp_models.cli.parts import UNTIL_RHAT, Chains
from bnp_models.cli.population import with_unit
from bnp_models.cli.runs import further_chains
from bnp_models.inference.run import AllDraws

WORDS = {
    "risk": ["s.csv", "--population-size", "9", "--keys", "a,b", "--bins", "a=2",
             "--groups", "b=g.csv", "--empty-phat", "0.1:1", "--ordered", "a"],
    "synthesize": ["s.csv", "--relative", "a:same", "--keep", "a"],
    "impute": ["s.csv", "--missing", "NA,."],
    "evaluate": ["s.csv", "a.csv", "b.csv", "--targets", "a"],
    "compare": ["s.csv"],
    "protect": ["s.csv", "--population-size", "9", "--recode", "drop:a", "--importance", "a=2"],
}  # fmt: skip


def command_of(name):
    parsed = parse(make_parser(), [name, *WORDS[name], "--out", "o"])
    return read(parsed.command, parsed.values)


def test_minutes_of_chains():
    """Ten until chains agree, an hour if a limit of R-hat is given, or those that are given."""
    for given, found in (
        ({}, (UNTIL_RHAT, 10)), ({"max_minutes": 3.0}, (UNTIL_RHAT, 3)),
        ({"until_rhat": 1.2}, (1.2, 60)), ({"until_rhat": 1.2, "max_minutes": 3.0}, (1.2, 3)),
        ({"draws": 50}, (None, None)), ({"draws": 50, "until_rhat": 1.2}, (1.2, 60)),
    ):  # fmt: skip
        settled = Chains(**given).settled()
        assert (settled.until_rhat, settled.max_minutes) == found


@pytest.mark.parametrize("option", [{"until_ess": 400.0}, {"max_minutes": 3.0}])
def test_options_of_a_run_that_ends_by_itself(option):
    """They have no use where the number of draws is given alone."""
    with pytest.raises(UsageError, match=f"{flag(next(iter(option)))}: is used only with"):
        Chains(draws=50, **option).settled()


def test_further_chains_have_the_same_minutes():
    """All their draws are made where there is no limit."""
    for minutes in (None, 3.0):
        chains = Chains(draws=50, max_minutes=minutes)
        options = further_chains(SimpleNamespace(chains=chains))
        assert options.pop("max_minutes", None) == minutes
        until = options.pop("until", None)
        assert until == (None if minutes is None else AllDraws(50))
        assert options == chains.sweeps


@pytest.mark.parametrize("name", WORDS)
def test_nothing_of_a_command_can_be_changed(name):
    command = command_of(name)
    hash(command)
    groups = [command, *(vars(command)[one.name] for one in fields(command))]
    for group in filter(is_dataclass, groups):
        with pytest.raises(FrozenInstanceError):
            setattr(group, fields(group)[0].name, None)


@pytest.mark.parametrize("name", WORDS)
def test_a_command_has_the_defaults_that_its_help_page_says(name):
    values = values_of(command_of(name))
    said = dict(zip(WORDS[name], WORDS[name][1:], strict=False))
    for one in options_of(type(command_of(name))):
        if f"--{one.name.replace('_', '-')}" not in said and not one.positional:
            assert one.name == "out" or values[one.name] == one.told["default"]


def test_what_a_command_does_not_offer_has_a_value_of_its_own():
    risk, synthesize, evaluate = map(command_of, ("risk", "synthesize", "evaluate"))
    assert risk.data.takes_id and not synthesize.data.takes_id
    assert synthesize.output.keep_parameters and not risk.output.keep_parameters
    protect = with_unit(command_of("protect"))
    assert protect.fit.households.head is None and synthesize.fit.households.head == "auto"
    assert evaluate.data.allow_identifying and not risk.data.allow_identifying


@pytest.mark.parametrize("name", WORDS)
def test_help_pages_begin_with_the_options_that_most_runs_need(name, capsys):
    assert main([name, "--help"]) == 0
    page = capsys.readouterr().out
    assert re.match(rf"usage: bnp-models {name} \w+( \w+ \.\.\.)? --out DIR", page)
    first = page[page.index("\noptions:\n") :].split("\n\n")[0]
    assert 10 <= len(re.findall(r"^  --", first, re.MULTILINE)) <= 14
    assert "--out DIR" in first and "--config FILE" in first


def test_options_that_come_first_exist():
    commands = [*COMMANDS, *ACTIONS.values()]
    known = {one.name for command in commands for one in options_of(command)}
    assert all(set(command.first) <= known for command in commands)
