"""The pages that define the models name what the code keeps, its default values and its kernels."""

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import bnp_models as bnp
from bnp_models.inference import arviz
from bnp_models.inference.trace import MANY_CHAINS, SUPERCHAIN
from bnp_models.kernels.cells.thinning import CountSummary
from bnp_models.kernels.variates.level_prior import CONCENTRATION_SHAPE
from bnp_models.models.cells import full_bayes, polettini_stander
from bnp_models.models.latent_classes.state import LatentClassInfo, LatentClassState
from bnp_models.models.mixed_membership.hdp import START_COMPONENTS
from bnp_models.models.mixed_membership.state import HDPInfo, HDPState
from bnp_models.models.nested.state import NestedInfo, NestedState
from bnp_models.models.options import options_of
from bnp_models.report import inference_data
from bnp_models.risk import overdispersion

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "definitions"

# Classes of state and info, page, and folder of the code, by model.
MODELS = {
    bnp.HDPMixedMembership: (HDPState, HDPInfo, "hdp", "mixed_membership"),
    bnp.MixedMembership: (HDPState, HDPInfo, "hdp", "mixed_membership"),
    bnp.NPLCM: (LatentClassState, LatentClassInfo, "nplcm", "latent_classes"),
    bnp.TNPLCM: (LatentClassState, LatentClassInfo, "tnplcm", "latent_classes"),
    bnp.NDPMPM: (NestedState, NestedInfo, "ndpmpm", "nested"),
}
SOURCES = {page: [f"models/{of}"] for _, _, page, of in MODELS.values()} | {
    "polettini_stander": ["models/cells", "risk"],
    "overdispersion": ["risk", "report"],
}
SHARED = ["models/level_prior.py", "kernels/variates", "inference/__init__.pyi", "__init__.pyi"]


def text_of(page):
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


def table(text, column):
    """Cells of a column by the first cell of the row, of the first table that has the column."""
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in lines.splitlines()]
        if column in rows[0]:
            place = rows[0].index(column)
            return {row[0].strip("`"): row[place].strip("`") for row in rows[2:]}
    raise AssertionError(f"no table with a column {column}")


def section(page, start):
    """The part of a page below the first heading that begins with these words."""
    found = re.search(rf"^## {start}.*?\n(.*?)(?=^## |\Z)", text_of(page), re.M | re.S)
    assert found, f"{page}.md has no section {start}"
    return found[1]


def kept(model):
    """Kind of every quantity that a model may keep, by name, as its page says it."""
    state, info, *_ = MODELS[type(model)]
    one = jnp.ones(())
    arrays = (SimpleNamespace(**dict.fromkeys(x.__dataclass_fields__, one)) for x in (state, info))
    kinds = dict.fromkeys(model.keep(*arrays), "on request")
    kinds |= dict.fromkeys(model.weight_parameters, "design weights")
    kinds |= dict.fromkeys((*model.parameters, *model.hyperparameters), "array")
    return kinds | dict.fromkeys(model.scalars, "scalar")


def without_gaps(rows):
    return {name: cell for name, cell in rows.items() if cell != "-"}


def header(model):
    return f"`{model.name}`"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_pages_name_all_that_is_kept(model):
    page = MODELS[model][2]
    assert without_gaps(table(section(page, "What is kept"), header(model))) == kept(model())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_pages_have_the_default_values(model):
    rows = without_gaps(table(section(MODELS[model][2], "Priors"), header(model)))
    options = options_of(model)
    assert rows == {name: str(options[name].default) for name in rows}
    hyperparameters = {name for name, one in options.items() if one.positive}
    assert set(rows) >= hyperparameters | {"level_prior", "level_shape", "ordered"}


def test_page_of_households_has_the_numbers_of_member_classes():
    meaning = table(section("ndpmpm", "Priors"), "meaning")["member_components"]
    numbers = [bnp.NDPMPM(member_classes=of).member_components for of in ("shared", "nested")]
    assert "None: {} if they are shared, {} if nested".format(*numbers) in meaning


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_pages_name_what_is_monitored(model):
    page = MODELS[model][2]
    text = section(page, "Convergence")
    if page == "tnplcm":
        text = section("nplcm", "Convergence")
    assert set(re.findall(r"`(\w+)`", text)) >= set(model.monitored) & set(model.scalars)


@pytest.mark.parametrize("variant", [1, 2])
def test_page_of_cells_has_the_default_values(variant):
    rows = table(section("polettini_stander", "Hyper"), f"`polettini-stander-{variant}`")
    defaults = bnp.PolettiniStander(variant=variant).hyperparameters
    assert {name: float(cell) for name, cell in without_gaps(rows).items()} == defaults
    priors = section("polettini_stander", "Hyper").split("NUTS")[1]
    medians, sds = table(priors, "median"), table(priors, "standard deviation of the logarithm")
    for name, (centre, sd) in full_bayes.PRIORS.items():
        np.testing.assert_allclose([np.log(float(medians[name])), float(sds[name])], [centre, sd])
    assert f"standard deviation {full_bayes.FRACTION_SD}" in priors
    assert set(polettini_stander.DEFAULTS) == {1, 2}


def test_page_of_cells_names_the_summary():
    rows = table(section("polettini_stander", "What is computed"), "meaning")
    assert tuple(rows) == CountSummary._fields


def test_page_of_overdispersion_has_the_constants_and_the_names():
    rows = table(section("overdispersion", "Prior"), "value")
    for name, cell in rows.items():
        assert ast.literal_eval(cell) == getattr(overdispersion, name), name
    assert len(rows) == 6
    rows = table(section("overdispersion", "What is kept"), "meaning")
    in_files = {arviz._IN_FILES.get(name, name) for name in inference_data._OF_RISK}
    assert set(rows) == in_files | {"tie_shape", "tie_exponent"}


@pytest.mark.parametrize("page", [*SOURCES, "algorithms"])
def test_kernels_on_the_pages_are_those_of_the_code(page):
    """A function of a page is used in the folder of its model; Sphinx checks that links resolve."""
    path = FOLDER / f"{page}.md" if page in SOURCES else ROOT / "docs" / "algorithms.md"
    folders = [*SOURCES.get(page, sum(SOURCES.values(), [])), *SHARED]
    sources = [ROOT / "bnp_models" / folder for folder in folders]
    files = [file for of in sources for file in ([of] if of.is_file() else of.rglob("*.py"))]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"\{(?:func|meth)\}`(?:\.|bnp_models\.)([\w.]+)`", text)
    assert len(named) >= 2
    for name in named:
        assert re.search(rf"\b{name.split('.')[-1]}\b", code), f"{name} is not in {folders}"


def test_page_of_algorithms_has_the_constants():
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert rf"c_j \sim \mathrm{{Ga}}({CONCENTRATION_SHAPE:g}, 1/L_j)" in text
    assert "They are {}, {} and {} in HDP".format(*START_COMPONENTS) in text
    every = {2: "every second", 4: "every fourth"}
    moves = {bnp.HDPMixedMembership: "split_or_merge", bnp.NPLCM: "split_or_merge_classes"}
    for model, move in moves.items():
        default = options_of(model)["split_merge_every"].default
        assert f"`.{move}`, {every[default]} sweep" in text
    assert f"With {MANY_CHAINS} chains or more (a multiple of four)" in text and SUPERCHAIN == 4


def test_wrong_values_are_seen():
    text = "| option | `a` | meaning |\n|---|---|---|\n| `b` | 2.0 | $x$ |\n| `c` | - | y |\n"
    assert table(text, "`a`") == {"b": "2.0", "c": "-"}
    assert without_gaps(table(text, "`a`")) != {"b": "1.0"}
