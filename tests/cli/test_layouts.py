"""Every command on every layout of a file to its end: nothing that writing needs is missing then.

The chains of one layout are those of all, since the records are the same.
"""

import io

import pandas as pd
import pytest

from bnp_models.cli import compare, protect, risk, runs
from bnp_models.cli.main import main

NAMES = ("age", "sex", "race")
SHORT = ["--chains", "2", "--warmup", "30", "--draws", "20"]
NPLCM = [*SHORT, "--model", "nplcm", "--components", "4"]
TO = ["--population-size", "300"]


@pytest.fixture(scope="module")
def frame(sample_frame):
    """Records with a column that is no key variable, and one of which values are missing."""
    frame = sample_frame[list(NAMES)].astype(str)
    gaps = frame["race"].where(frame.index % 10 > 0, "")
    code = frame["race"].map({label: k for k, label in enumerate(sorted(set(frame["race"])))})
    return frame.assign(code=code, note=[f"n{k % 2}" for k in range(len(frame))], gaps=gaps)


def as_text(frame, **options):
    return frame.to_csv(**{"index": False, "lineterminator": "\n", **options})


def with_nameless(frame):
    """A first column without a name, whose values several records have, is a column."""
    return frame.assign(**{"": [str(k // 2) for k in range(len(frame))]})[["", *frame]]


LAYOUTS = {
    "plain": (as_text, []),
    "row names of R": (lambda f: as_text(f, index=True), []),
    "a header that is short of the row names": (lambda f: as_text(f, index=True)[1:], []),
    "a first column without a name": (lambda f: as_text(with_nameless(f)), []),
    "a title": (lambda f: f"Persons of 2024\n\n{as_text(f)}", ["--skip", "2"]),
    "a line for Excel": (lambda f: f"sep=;\n{as_text(f, sep=';')}", []),
    "empty columns": (lambda f: as_text(f.assign(**{"": "", " ": ""})), []),
    "names with line breaks": (lambda f: as_text(f.rename(columns={"sex": " sex\r\n"})), []),
    "a byte order mark": (lambda f: "\ufeff" + as_text(f), []),
    "tabs and Windows": (lambda f: as_text(f, sep="\t", lineterminator="\r\n"), []),
    "a workbook of R": (lambda f: _workbook(f, index=True), []),
    "a workbook with a title": (lambda f: _workbook(f, startrow=2), ["--skip", "2"]),
    "Stata": ("dta", []),
    "Parquet with an index": ("parquet", []),
}


def _workbook(frame, **options):
    stream = io.BytesIO()
    frame.to_excel(stream, **{"index": False, **options})
    return stream.getvalue()


def written(frame, layout, folder):
    """Path of the records in a layout."""
    make, _ = LAYOUTS[layout]
    if make == "dta":
        path = folder / "sample.dta"
        frame.to_stata(path, write_index=False)
    elif make == "parquet":
        path = folder / "sample.parquet"
        frame.set_index(pd.Index(range(len(frame)), name="row")).to_parquet(path)
    else:
        content = make(frame)
        path = folder / f"sample.{'csv' if isinstance(content, str) else 'xlsx'}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture(scope="module")
def chains_once():
    """Chains are run and protected once for the same records, model and options."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (runs, "sample"), (compare, "compare"), (risk, "population_risk"),
            (protect, "population_risk"), (protect, "protect"),
        ):  # fmt: skip
            patch.setattr(module, name, _once(getattr(module, name)))
        # Pages have nothing of the file beyond the records.
        for name in ("protection", "risk", "synthesis"):
            patch.setattr(f"bnp_models.report.{name}.render_page", lambda *_, **__: "")
        for name in ("compare.write_comparison_report", "evaluate.write_evaluation_report"):
            patch.setattr(f"bnp_models.cli.{name}", lambda path, *_, **__: path.write_text(""))
        yield


def _once(function):
    known = {}

    def cached(first, *table, **options):
        which = str(first), *(getattr(x, "digest", x) for x in table), tuple(sorted(options))
        if which not in known:
            known[which] = function(first, *table, **options)
        elif function.__name__ == "compare":
            # It looks into the folder of its checkpoints.
            options["checkpoint"].mkdir(exist_ok=True)
        return known[which]

    return cached


# Each is read by a path of its own; the others are alike, and take their time in the long tests.
QUICK = {
    "plain", "a header that is short of the row names", "a first column without a name", "a title",
    "a line for Excel", "a workbook with a title", "Stata",
}  # fmt: skip


@pytest.mark.parametrize(
    "layout", [pytest.param(x, marks=[pytest.mark.long] * (x not in QUICK)) for x in LAYOUTS]
)
def test_every_command_comes_to_its_end(layout, frame, tmp_path, capsys, chains_once):
    path, skip = written(frame, layout, tmp_path), LAYOUTS[layout][1]

    def run(command, *more, out=None, variables=NAMES):
        out = tmp_path / (out or command)
        assert main([command, str(path), *more, *skip, "--variables", ",".join(variables),
                     "--quiet", "--out", str(out)]) == 0, capsys.readouterr().err  # fmt: skip
        return out

    run("risk", *NPLCM, *TO)
    made = run("protect", *NPLCM, *TO, "--k", "2", "--suppress", "0.3", "--carry", "note",
               "--link", "code=race")  # fmt: skip
    protected = pd.read_csv(made / "protected.csv", dtype=str)
    assert protected["note"].tolist() == frame["note"].tolist()
    assert set(protected) <= {*NAMES, "note", "code"} and len(protected.columns) > 1
    pairs = [protected.get(name, protected["note"]) for name in ("race", "code")]
    assert ("race" in protected) == ("code" in protected)
    assert (pairs[0].isna() == pairs[1].isna()).all()
    assert all(of.nunique() == 1 for _, of in pairs[1].groupby(pairs[0]))
    made = run("synthesize", *NPLCM, "--datasets", "1")
    synthetic = made / "synthetic_1.csv"
    assert list(pd.read_csv(synthetic)) == list(NAMES)
    run("synthesize", *NPLCM, "--datasets", "1", "--keep", "age", "--carry", "note", out="kept",
        variables=("age", "sex"))  # fmt: skip
    made = run("impute", *NPLCM, "--datasets", "1", variables=("age", "sex", "gaps"))
    imputed = pd.read_csv(made / "imputed_1.csv", dtype=str)
    assert imputed["gaps"].notna().all() and (imputed["sex"] == frame["sex"]).all()
    run("compare", *SHORT, "--models", "nplcm:components=4")
    out = tmp_path / "evaluation"
    assert main(["evaluate", str(path), str(synthetic), *skip, "--variables", ",".join(NAMES),
                 "--quiet", "--out", str(out)]) == 0  # fmt: skip
    zeros = tmp_path / "zeros.csv"
    assert main(["conditions", "suggest", str(path), *skip, "--variables", ",".join(NAMES),
                 "--out", str(zeros)]) == 0  # fmt: skip
    zeros.write_text("age,sex\n0-14,no\n")
    assert main(["conditions", "check", str(path), *skip, "--variables", ",".join(NAMES),
                 "--conditions", str(zeros), "--out", str(tmp_path / "bad.csv")]) == 2  # fmt: skip
