"""What of a sample the files of results tell: a label that one person has is in no safe one."""

import stat

import pandas as pd
import pytest

from bnp_models.cli import parts
from bnp_models.cli.main import main
from bnp_models.synthesis import posterior_margins as margins

SHORT = ["--chains", "2", "--warmup", "30", "--draws", "20", "--quiet"]
MODEL = ["--model", "nplcm", "--components", "4"]
KEYS = ["--variables", "age,sex,race"]
SIZE = ["--population-size", "300"]
LABEL = "Xyzzy7391"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sample_frame):
    """A sample in which one person has a label of its own, and the results of all commands."""
    out = tmp_path_factory.mktemp("planted")
    frame = sample_frame.astype(object)
    rare = frame.index[frame["race"] == frame["race"].value_counts().index[-1]]
    frame.loc[rare, "race"] = frame["race"].mode()[0]
    frame.loc[frame.index[71], "race"] = LABEL
    frame.insert(0, "person", [f"ID{i:04}" for i in range(len(frame))])
    frame.to_csv(out / "sample.csv", index=False)
    frame.loc[frame.index[3], "sex"] = None
    frame.to_csv(out / "incomplete.csv", index=False)
    sample, more = str(out / "sample.csv"), [*MODEL, *SHORT, *KEYS, "--no-records"]
    calls = {
        "risk": [sample, *SIZE, *more, "--id", "person", "--max-tau1", "9"],
        "protect": [sample, *SIZE, *more, "--id", "person", "--max-tau1", "0.5",
                    "--suppress", "0"],
        # Drawn at random, so that they can be attacked.
        "synthesize": [sample, *more, "--datasets", "2", "--for", "inference"],
        "impute": [str(out / "incomplete.csv"), *more, "--datasets", "1"],
        "evaluate": [sample, *(str(out / f"synthesize/synthetic_{m}.csv") for m in (1, 2)), *KEYS,
                     "--posterior", str(out / "synthesize/posterior.nc"), "--keys", "age,sex",
                     "--quiet", "--no-records"],
        "compare": [sample, "--models", "nplcm:components=4", *SIZE, *SHORT, *KEYS,
                    "--no-records"],
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        # All margins are judged by, those of the rare label among them.
        patch.setattr(margins.worst_margins, "__defaults__", (100,))
        for name, words in calls.items():
            assert main([name, *words, "--out", str(out / name)]) == 0
    return out


SAFE = {
    "risk": ["report.html", "run.toml"],
    "protect": ["report.html", "run.toml"],
    "synthesize": ["report.html", "run.toml"],
    "impute": ["report.html", "run.toml"],
    "evaluate": ["report.html", "run.toml"],
    "compare": ["report.html", "run.toml", "compare.json", "run.json"],
}


@pytest.mark.parametrize("name", SAFE)
def test_safe_files_tell_of_nobody(folder, name):
    for file in SAFE[name]:
        content = (folder / name / file).read_text()
        assert LABEL not in content and "ID00" not in content, file


@pytest.mark.parametrize("file", [
    "risk/risk.json", "risk/posterior.nc", "synthesize/posterior.nc",
    "impute/imputed_1.csv", "impute/posterior.nc", "protect/changes.json",
])  # fmt: skip
def test_others_tell_and_are_the_owners_alone(folder, file):
    assert LABEL.encode() in (folder / file).read_bytes()
    assert stat.S_IMODE((folder / file).stat().st_mode) == 0o600


def test_what_is_written_is_what_is_listed(folder):
    release = {"protect/protected.csv", *(f"synthesize/synthetic_{m}.csv" for m in (1, 2))}
    for path in folder.glob("*/*"):
        name = path.relative_to(folder).as_posix()
        assert path.is_file(), "a checkpoint is left"
        private = stat.S_IMODE(path.stat().st_mode) == 0o600
        assert private == (name not in release), name
    for name in release:
        assert "person" not in pd.read_csv(folder / name) or name == "protect/protected.csv"


def test_a_checkpoint_is_the_owners_alone(folder, tmp_path, monkeypatch):
    words = ["risk", str(folder / "sample.csv"), *SIZE, *MODEL, *SHORT, *KEYS, "--until-rhat",
             "1.0001", "--until-ess", "1e9"]  # fmt: skip
    # By default the first draws are made whatever they take.
    monkeypatch.setattr(parts, "MAX_MINUTES", 0.00001)
    words = [word for word in words if word not in ("--draws", "20")]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    checkpoint = tmp_path / "out/checkpoint"
    assert stat.S_IMODE(checkpoint.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(path.stat().st_mode) for path in checkpoint.iterdir()}
    assert modes == {0o600}
