"""``bnp-models compare``, and the coarser keys of ``bnp-models risk``."""

import itertools
import json
from types import SimpleNamespace

import pytest
from commands import one_line
from pages import check_well_formed, words_of

import bnp_models as bnp
from bnp_models.cli import compare
from bnp_models.cli.main import main
from bnp_models.cli.parts import Data
from bnp_models.inference import driver

SHORT = ["--chains", "2", "--warmup", "30", "--draws", "20"]
MODELS = "nplcm:components=4,nplcm:components=4:level-prior=uniform"


@pytest.fixture(scope="module")
def csv(tmp_path_factory, sample_frame):
    path = tmp_path_factory.mktemp("input") / "sample.csv"
    sample_frame.to_csv(path, index=False)
    return path


def compare_arguments(csv, out, *more):
    return ["compare", str(csv), "--variables", "age,sex", "--models", MODELS,
            "--population-size", "9000", *SHORT, "--out", str(out), *more]  # fmt: skip


@pytest.mark.long
def test_compare(csv, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        # The first model is done when the command is interrupted.
        done = []

        def interrupted(*arguments):
            done.append(arguments)
            if len(done) == 2:
                raise KeyboardInterrupt
            return bnp.population_risk(*arguments)

        patch.setattr("bnp_models.comparison.comparison.population_risk", interrupted)
        assert main(compare_arguments(csv, out, "--quiet")) == 130
    assert "--resume" in one_line(capsys)
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint"]
    assert main(compare_arguments(csv, out, "--resume")) == 0
    said = capsys.readouterr().out
    assert "nats, the best" in said and "less than the best" in said
    assert sorted(path.name for path in out.iterdir()) == ["compare.json", "report.html",
                                                           "run.json", "run.toml"]  # fmt: skip
    found = json.loads((out / "compare.json").read_text())
    assert list(found["models"]) == MODELS.split(",") and found["best"] in found["models"]
    assert found["held_out_records"] == found["n"] / found["parts"]
    for one in found["models"].values():
        assert one["held_out"] < 0 and one["behind"] >= 0
        assert {"cells_with_1", "worst_pairs"} <= set(one["checks"])
        assert one["tau1"]["q025"] <= one["tau1"]["mean"] <= one["tau1"]["q975"]
    page = (out / "report.html").read_text()
    check_well_formed(page, 0)
    for name in found["models"]:
        assert name in words_of(page)
    assert main(compare_arguments(csv, out, "--resume")) == 0
    assert "is complete" in capsys.readouterr().out


@pytest.mark.long
def test_a_comparison_goes_on_with_more_minutes(csv, tmp_path, capsys, monkeypatch):
    """By this clock each block of sweeps, soon of one sweep, and each compilation take a second."""
    clock = itertools.count()
    monkeypatch.setattr(driver, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert main(compare_arguments(csv, out, "--max-minutes", "0.01")) == 1
    assert "there are no results yet" in capsys.readouterr().err and not out.exists()
    # A run of all draws takes 40 seconds.
    assert main(compare_arguments(csv, out, "--max-minutes", str(4 * 31 / 60))) == 0
    said = capsys.readouterr().out
    assert said.count("warning: nplcm") == 4 and said.endswith("more --max-minutes\n")
    short = json.loads((out / "compare.json").read_text())
    for one in short["models"].values():
        told = [sentence for sentence in one["warnings"] if "stopped after" in sentence]
        assert "of at least 20 draws of each chain" in told[0] and "of 20 draws each" in told[1]
    assert main(compare_arguments(csv, out, "--max-minutes", "60", "--resume")) == 0
    assert "stopped" not in capsys.readouterr().out
    assert main(compare_arguments(csv, whole)) == 0
    found = [json.loads((folder / "compare.json").read_text()) for folder in (out, whole)]
    for document in found:
        for one in document["models"].values():
            del one["seconds"]
    assert found[0] == found[1] != short and not (out / "checkpoint").exists()


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--models", "hdp,polettini-stander-1"], ["'polettini-stander-1'", "hdp"]),
        (
            ["--models", "hdp:components=3"],
            ["'components=3'", "does not set an option of hdp", "level-prior"],
        ),
        (["--models", "nplcm:components=1"], ["components must be"]),
        (["--folds", "6"], ["--folds 6", "--parts 5"]),
        (["--parts", "5000"], ["--parts 5000"]),
        (["--population-size", "10"], ["population"]),
        (["--models", "nplcm", "--settles", "age=sex"], ["--settles: none of the models takes"]),
    ],
)
def test_bad_comparisons_are_refused(more, parts, csv, tmp_path, capsys):
    assert main(compare_arguments(csv, tmp_path / "out", *more)) == 2
    message = one_line(capsys)
    assert all(part in message for part in parts), message
    assert not (tmp_path / "out").exists()


def test_models_without_the_structural_zeros_are_told_of(csv, caplog):
    models = {"nplcm": bnp.NPLCM(), "tnplcm": bnp.TNPLCM()}
    compare._check_zeros(Data(sample=csv), models)
    assert not caplog.text
    compare._check_zeros(Data(sample=csv, settles=(("age", "sex"),)), models)
    assert "--settles: models that take no structural zeros are fitted without them: nplcm" in (
        caplog.text
    )


@pytest.mark.long
def test_coarser_keys(csv, tmp_path):
    out = tmp_path / "out"
    assert main([
        "risk", str(csv), "--population-size", "300", *SHORT, "--model", "nplcm",
        "--components", "4", "--keys", "age,sex", "--keys", "age,race",
        "--what-if", "drop:sex,race", "--no-records", "--out", str(out), "--quiet",
    ]) == 0  # fmt: skip
    risk = json.loads((out / "risk.json").read_text())
    assert risk["variables"] == ["age", "sex", "race"]
    found = {row["spec"]: row for row in risk["what_if"]}
    assert list(found) == [
        "keep:age,sex", "keep:age,race", "drop:sex,race", "drop:age", "drop:sex", "drop:race"
    ]  # fmt: skip
    assert found["keep:age,race"]["variables"] == ["age", "race"]
    for row in found.values():
        assert row["sample_uniques"] <= risk["sample_uniques"]
        assert row["tau1"]["mean"] <= row["tau2"]["mean"]
        assert row["k_anonymity"][0]["records"] == row["sample_uniques"]
    for name, of_variable in risk["contributions"].items():
        left = found[f"drop:{name}"]["tau1"]["mean"]
        assert of_variable["share"] == pytest.approx(1 - left / risk["tau1"]["mean"])
        levels = of_variable["levels"].values()
        assert sum(level["records"] for level in levels) == risk["n"]
        for name in ("tau1", "tau2"):
            total = risk[f"{name}_conditional"]["mean"]
            assert sum(level[name] for level in levels) == pytest.approx(total)
    words = words_of((out / "report.html").read_text())
    assert "With coarser keys" in words and "Where the risk is" in words


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--what-if", "drop:income"], ["--what-if", "income"]),
        (["--what-if", "age"], ["--what-if", "'age' is not a coarsening"]),
        (["--keys", "age,income"], ["income"]),
        (["--keys", "age", "--variables", "sex,race"], ["--keys", "age"]),
        (["--model", "polettini-stander-1", "--keys", "age"], ["--keys", "a model of cells"]),
    ],
)
def test_bad_coarsenings_are_refused(more, parts, csv, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["risk", str(csv), "--population-size", "9000", "--out", str(out), *more]
    assert main(arguments) == 2
    message = one_line(capsys)
    assert all(part in message for part in parts), message
    assert not out.exists()
