"""The README's commands, example and quoted output are those of the repository."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


PAGES = ("start", "minutes", "models", "reading", "sdcmicro_synthpop")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


def recipe(target):
    """Lines of a target of the Makefile, as a shell would get them."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", makefile, flags=re.MULTILINE)
    return found[1].replace("\t", "").replace("$(PYTHON)", "python3")


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_full_lines_are_those_of_make(target):
    assert f"    make {target} " in TEXT
    assert recipe(target).count("\n") >= 3
    assert recipe(target) in blocks("sh")


def test_the_quoted_output_is_that_of_the_demo():
    figures = ROOT / "experiments" / "quality" / "readme_figures"
    printed = (figures / "demo.txt").read_text(encoding="utf-8")
    assert "95% interval" in printed
    assert blocks("text")[0] == printed


def test_the_documented_options_exist(capsys):
    from bnp_models.cli.main import main

    for command in ("risk", "synthesize", "impute", "evaluate", "compare", "protect"):
        assert main([command, "--help"]) == 0
    for action in ("suggest", "check"):
        assert main(["conditions", action, "--help"]) == 0
    known = capsys.readouterr().out
    others = {"--adults", "--compare", "--dist", "--help", "--maxprocesses", "--quiet", "--rows"}
    pages = (ROOT / "docs" / f"{name}.md" for name in PAGES)
    text = "\n".join([TEXT, *(page.read_text(encoding="utf-8") for page in pages)])
    own = set(re.findall(r"--[a-z]+", text)) - others
    assert {"--warmup", "--levels", "--resume"} <= own
    assert {option for option in own if option not in known} == set()


def test_the_example_runs():
    source = "\n".join(blocks("python"))
    # The shapes of the fixture `small`: in the whole suite nothing is compiled twice.
    small = {
        "census_income(adults=True)": "census_income()",
        "from_frame(df)": 'from_frame(df, variables=["age", "sex", "race", "education"])',
        "228_421": "299_285",
        "1_000": "150",
        "until=target": "until=target, num_chains=2, num_warmup=20, num_samples=20",
        "others_rhat=1.1": "max_rhat=1000, min_ess=1, others_rhat=1000",
    }
    for number, less in small.items():
        assert number in source
        source = source.replace(number, less)
    names = {}
    exec(compile(source, "README.md", "exec"), names)
    risk = names["risk"]
    assert risk.tau1.shape == (2, 20)
    np.testing.assert_allclose(risk.r1.sum(), risk.tau1_conditional.mean(), rtol=1e-6)
    assert 0 < len(risk.rows) < 150
    assert len(names["riskiest"]) == min(10, len(risk.rows))
    assert names["idata"]["posterior"]["components"].shape == (2, 20)


def test_pictures_are_small():
    pictures = re.findall(r"\]\(([^)]+\.png)\)", TEXT)
    assert pictures
    assert max((ROOT / picture).stat().st_size for picture in pictures) < 200_000


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 200


def test_the_guide_names_what_there_is():
    """Functions of this package and files of results in the guide for users of the R packages."""
    import bnp_models as bnp
    from bnp_models.cli.outputs import OUTPUTS

    guide = (ROOT / "docs" / "sdcmicro_synthpop.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`bnp\.([a-z_0-9.]+)`", guide))
    assert {"k_anonymity", "risk.l_diversity", "evaluation.interval_overlap"} <= named
    for name in named:
        found = bnp
        for part in name.split("."):
            found = getattr(found, part)
    rows = [line.split(" | ") for line in guide.splitlines() if line.startswith("| `")]
    assert len(rows) > 50 and {len(row) for row in rows} == {3}
    files = set(re.findall(r"`([a-z]+\.(?:json|csv|html|toml))`", guide))
    written = {name for names in OUTPUTS.values() for name in names}
    assert {"run.toml", "protected.csv"} <= files <= {*written, "run.toml", "evaluation.json"}
