"""The notebooks run from their sources, and the executed copies beside them have not drifted."""

from pathlib import Path

import jupytext
import nbformat
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))

# Pictures that each has at least, and what the executed copy says in the end, or on the way.
EXPECTED = {
    "cell_risk": (1, "cell risk:"),
    "disclosure_risk": (4, "tau_1: mean"),
    "gpu": (0, "these outputs are of a"),
    "households": (1, "synthetic households:"),
    "own_sampler": (2, "own sampler:"),
    "structural_zeros": (1, "quote:"),
    "synthetic_data": (1, "synthetic data:"),
}


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook, kind):
    return [out for cell in code(notebook) for out in cell.outputs if out.output_type == kind]


def said(notebook):
    return "".join(out.text for out in outputs(notebook, "stream") if out.name == "stdout")


def test_there_are_notebooks():
    assert SOURCES
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {path.stem for path in SOURCES}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_executed_copy_is_that_of_the_source(source):
    made = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    read = jupytext.read(source)
    assert [(cell.cell_type, cell.source) for cell in made.cells] == [
        (cell.cell_type, cell.source) for cell in read.cells
    ]
    assert [cell.execution_count for cell in code(made)] == [*range(1, len(code(made)) + 1)]
    assert outputs(made, "error") == []
    pictures = [out for out in outputs(made, "display_data") if "image/png" in out.data]
    num_pictures, says = EXPECTED[source.stem]
    assert len(pictures) >= num_pictures
    assert says in said(made)
    assert [out for out in outputs(made, "stream") if out.name == "stderr"] == []
    assert source.with_suffix(".ipynb").stat().st_size < 1_000_000


@pytest.mark.long
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_source_runs(source, tmp_path, monkeypatch):
    from nbconvert.preprocessors import ExecutePreprocessor

    monkeypatch.setenv("BNP_NOTEBOOK_SMALL", "1")
    notebook = jupytext.read(source)
    executor = ExecutePreprocessor(timeout=300, kernel_name="python3")
    executor.preprocess(notebook, {"metadata": {"path": str(tmp_path)}})
    assert all(cell.execution_count for cell in code(notebook))
    assert outputs(notebook, "error") == []
    assert list(tmp_path.iterdir()) == []  # it writes to a temporary folder of its own
    assert EXPECTED[source.stem][1] in said(notebook)
    if source.stem == "disclosure_risk":
        last = outputs(notebook, "execute_result")[-1].data["text/plain"]
        assert all(
            name in last for name in ("posterior.nc", "records.csv", "report.html", "risk.json")
        )
