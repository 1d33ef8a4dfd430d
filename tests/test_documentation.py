"""The documentation names all there is to name, and its links lead somewhere.

`make docs` builds it and turns warnings into errors; these tests need neither Sphinx nor a network.
"""

import inspect
import re
from pathlib import Path

import pytest
from public import public_names

import bnp_models as bnp
from bnp_models.cli.parser import make_parser

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([
    *ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("notebooks/*.md"),
    *ROOT.glob("experiments/**/*.md"), *ROOT.glob("bnp_models/**/*.md"),
])  # fmt: skip
FUNCTIONS = {name: one for name, one in public_names().items() if inspect.isfunction(one)}
SECTION = re.compile(r"^<!-- (\S+): (#+ .*) -->$", flags=re.MULTILINE)


def prose(text):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page):
    """Internal links of a page, as (path, anchor)."""
    text = re.sub(r"`[^`\n]*`", "", prose(page.read_text(encoding="utf-8")))
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    inside = [target for target in targets if not re.match(r"[a-z]+:", target)]
    return [(path, anchor) for path, _, anchor in (t.partition("#") for t in inside)]


def anchors(page):
    """Anchors of a page's headings, those of sections that it takes from others too."""
    headings = re.findall(r"^#+ +(.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_internal_links_lead_to_files_and_headings(page):
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), f"no file {path}"
        assert ROOT in target.resolve().parents, f"{path} is outside of the repository"
        if anchor:
            assert anchor in anchors(target), f"no heading #{anchor} in {target.name}"


def malformed(text):
    """External links of a page that cannot be right: nothing is asked of the network."""
    found = re.findall(r"\[([^]]*)\]\((\w+://[^)\s]*)\)", prose(text))
    form = r"https?://(?:[\w-]+\.)+[a-z]+(?:/[\w./~%+=-]*)?(?:#[\w.-]+)?"
    doi = r"https://doi\.org/10\.\d{4,9}/[\w.()/-]+"
    return [
        (shown, target)
        for shown, target in found
        if not re.fullmatch(doi if "doi.org" in target else form, target)
        or target[-1] in ".-"
        or (shown.startswith("doi:") and target != f"https://doi.org/{shown[4:]}")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_external_links_have_the_form_of_links(page):
    assert malformed(page.read_text(encoding="utf-8")) == []


def test_malformed_links_are_seen():
    good = "[a](https://x.org/b#c) [doi:10.1214/16-BA1](https://doi.org/10.1214/16-BA1) [d](e.md)"
    bad = (
        "[doi:10.1214/1](https://doi.org/10.1214/2) [f](https://doi.org/1214/1) [g](https://x)"
        " [h](https://x.org/y.) [i](htps://x.org)"
    )
    assert malformed(good) == []
    assert [shown for shown, _ in malformed(f"{good} {bad}")] == [
        "doi:10.1214/1", "f", "g", "h", "i",
    ]  # fmt: skip


def test_broken_links_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b` (c)\n\n[x](no.md) [y](#a-b-c)\n[z](https://x.y) `[q](r)`\n")
    assert links(page) == [("no.md", ""), ("", "a-b-c")]
    assert anchors(page) == {"a-b-c"}


def test_sections_taken_from_other_pages_exist():
    taken = [(page, *found) for page in PAGES for found in SECTION.findall(page.read_text("utf-8"))]
    assert len(taken) >= 5
    for page, path, heading in taken:
        text = prose((ROOT / path).read_text(encoding="utf-8"))
        assert re.search(rf"^{re.escape(heading)}$", text, re.MULTILINE), (page.name, heading)


def test_every_public_name_has_its_place_in_the_reference():
    directive = re.compile(r"^\.\. auto(?:class|function|exception):: ([\w.]+)$", re.MULTILINE)
    named = []
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for block in text.split(".. currentmodule:: bnp_models\n")[1:]:
            named += directive.findall(block.split("```")[0])
    # Sphinx finds what is in a namespace by its whole name only.
    assert all(name.startswith("bnp_models.") for name in named if "." in name)
    named = [name.removeprefix("bnp_models.") for name in named]
    assert sorted(named) == sorted(public_names())


def test_every_module_of_kernels_has_its_place_in_the_reference():
    text = (DOCS / "api" / "kernels.md").read_text(encoding="utf-8")
    named = re.findall(r"^\.\. automodule:: bnp_models\.kernels\.([\w.]+)$", text, re.MULTILINE)
    modules = {
        ".".join(path.relative_to(ROOT / "kernels").with_suffix("").parts)
        for path in (ROOT / "kernels").glob("*/*.py")
        if path.stem != "__init__"
    }
    assert sorted(named) == sorted(modules)


def test_every_command_has_its_place_in_the_reference():
    text = (DOCS / "command_line.md").read_text(encoding="utf-8")
    assert re.findall(r":path: (\w+)", text) == list(make_parser().commands)


def undescribed(function):
    """Parameters of a function that its section Parameters lacks, or has without a word."""
    doc = inspect.getdoc(function) or ""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n---|\Z)", doc, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\S.*)\n +\S", section[1], re.MULTILINE) if section else []
    found = {name.strip("* ") for entry in entries for name in entry.split(":")[0].split(",")}
    return [name for name in inspect.signature(function).parameters if name not in found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_describe_all_their_parameters(name):
    assert undescribed(FUNCTIONS[name]) == []


def test_methods_that_may_be_overridden_describe_all_their_parameters():
    """The guide names them by model, in a table."""
    rows = re.findall(r"^\| (\[.*\.md\).*) \| (`.*) \|$", (DOCS / "extending.md").read_text(), re.M)
    found = {name for _, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert found == {"draw_alpha", "draw_alpha0", "draw_concentrations", "draw_g0", "draw_weights",
                     "prior_tables"}  # fmt: skip
    for model in (bnp.HDPMixedMembership, bnp.MixedMembership, bnp.NPLCM, bnp.NDPMPM):
        for name in found & set(dir(model)):
            lacks = set(undescribed(getattr(model, name))) - {"self", "model"}
            assert lacks == set(), (model, name, lacks)


def test_parameters_without_a_description_are_seen():
    def function(a, b, *rest, c, d, **more):
        """Do nothing.

        Parameters
        ----------
        a, b
            Two numbers.
        rest : int
            Others.
        c
        Returns
        -------
        d
            Nothing.
        """

    assert undescribed(function) == ["c", "d", "more"]
    assert undescribed(lambda x: x) == ["x"]
    assert len(FUNCTIONS) > 100 and FUNCTIONS["sample"] is bnp.sample
