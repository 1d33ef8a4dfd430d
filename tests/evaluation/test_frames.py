"""Data frames wherever a coded table is asked for: the same figures as of tables."""

import jax
import numpy as np
import pandas as pd
import pytest

import bnp_models as bnp


@pytest.fixture(scope="module")
def files(latent):
    """Two synthetic files of the small run of the truncated model."""
    return bnp.synthesize(latent.run, 2)


def figures(evaluation):
    """Summary without the clock."""
    return {name: x for name, x in evaluation.summary().items() if name != "seconds"}


def test_evaluate_frames(latent, files, conditions_frame):
    """Frames, one frame, tables and conditions as a frame give the same evaluation."""
    table, schema = latent.table, latent.table.schema
    coded = [bnp.Microdata.from_frame(file, schema.variables, schema) for file in files]
    options = {"conditions": latent.conditions, "holdout": coded[1], "keys": [["age", "sex"]]}
    wanted = bnp.evaluate(table, coded, population=coded[0], **options)
    framed = bnp.evaluate(
        table, files, population=files[0], **options | {
            "conditions": conditions_frame, "holdout": files[1].assign(more=1),
        },
    )  # fmt: skip
    assert figures(framed) == figures(wanted)
    assert [file.schema for file in framed.synthetic] == [schema, schema]
    assert figures(bnp.evaluate(table, files[0])) == figures(bnp.evaluate(table, [coded[0]]))


def test_an_original_that_is_a_frame(files):
    """It is coded with the labels of all frames, or as a table among the files is."""
    original = files[0].assign(sex="Male")
    evaluation = bnp.evaluate(original, files)
    for j, name in enumerate(original.columns):
        labels = {*original[name], *files[0][name], *files[1][name]}
        assert {*evaluation.original.schema.levels[j]} == labels
    table = bnp.Microdata.from_frame(pd.concat([original, *files]))
    assert bnp.evaluate(original, [table]).original.schema == table.schema


def test_each_measure_takes_frames(latent, files):
    table, schema = latent.table, latent.table.schema
    coded = [bnp.Microdata.from_frame(file, schema.variables, schema) for file in files]
    frame = table.to_frame()
    assert bnp.evaluation.closest_records(table, files) == bnp.evaluation.closest_records(
        table, coded
    )
    assert bnp.evaluation.disclosure(table, files, ["age"]) == bnp.evaluation.disclosure(
        table, coded, ["age"]
    )
    assert bnp.evaluation.replicated_uniques(table, files) == bnp.evaluation.replicated_uniques(
        table, coded
    )
    assert bnp.evaluation.propensity_score(table, files[0]) == bnp.evaluation.propensity_score(
        table, coded[0]
    )
    assert (
        bnp.evaluation.proportions(table, files, 1).summary()
        == bnp.evaluation.proportions(table, coded, 1).summary()
    )
    assert bnp.k_anonymity(frame) == bnp.k_anonymity(table)
    assert bnp.weighted_microdata(files[0], np.full(150, 2.0)).n == 150
    assert bnp.weighted_cells(files[0], 1000).f.sum() == 150


def test_a_frame_is_sampled_and_attacked(latent, incomplete_frame, conditions_frame):
    """`sample` codes a frame as `from_frame` does, and conditions with it."""
    settings = {"num_chains": 1, "num_warmup": 0, "num_samples": 8}
    run = bnp.sample(
        bnp.TNPLCM(), incomplete_frame, conditions=conditions_frame, key=jax.random.key(1),
        **settings,
    )  # fmt: skip
    assert run.table.digest == latent.table.digest
    assert run.conditions.digest == latent.conditions.digest
    files = bnp.synthesize(run, 2)
    rows = np.flatnonzero(run.table.complete)[:2]
    options = {"key": jax.random.key(2), "rows": rows, "num_bootstrap": 2}
    risk = bnp.attack_risk(run, incomplete_frame, files, **options)
    again = bnp.attack_risk(run, run.table, files, **options)
    np.testing.assert_array_equal(risk.rho, again.rho)


def test_labels_of_another_type():
    """Files whose numbers are text, or the reverse, are coded like the original."""
    frame = pd.DataFrame({"a": ["1", "2", "2"] * 20, "b": ["x", "y", "x"] * 20})
    table = bnp.Microdata.from_frame(frame)
    file = frame.assign(a=frame["a"].astype(int))
    assert bnp.evaluate(table, file).synthetic[0].digest == table.digest


def test_households_with_frames():
    persons = pd.DataFrame({
        "hid": np.repeat(np.arange(30), 2), "role": ["head", "other"] * 30,
        "sex": [*"fmmffm"] * 10, "size": "2",
    })  # fmt: skip
    for head in (None, ("role", "head")):
        table = bnp.Households.from_frame(persons, "hid", ["size"], head=head)
        made = bnp.evaluate(table, [persons.assign(more=0), persons]).synthetic
        assert [file.digest for file in made] == [table.digest] * 2
    with pytest.raises(bnp.MicrodataError, match="synthetic file 2.*'sex'.*'x' is not a declared"):
        bnp.evaluate(table, [persons, persons.replace("f", "x")])


def test_a_frame_that_does_not_fit_is_named(latent, files):
    table = latent.table
    with pytest.raises(bnp.MicrodataError, match=r"synthetic file 2, column 'age': unknown"):
        bnp.evaluate(table, [files[0], files[1].drop(columns="age")])
    with pytest.raises(bnp.MicrodataError, match=r"holdout, row 1, column 'sex': value 'x'"):
        bnp.evaluate(table, files, holdout=files[0].assign(sex=["Male", *"xy" * 75][:150]))
    with pytest.raises(TypeError, match="^synthetic must be of type Sequence, not 3; write eval"):
        bnp.evaluate(table, 3)
    with pytest.raises(TypeError, match="^original must be of type .*, not list; write evaluate"):
        bnp.evaluate(files, table)
    weighted = bnp.weighted_microdata(table, np.full(table.n, 2.0))
    with pytest.raises(bnp.MicrodataError, match="takes no design weights"):
        bnp.evaluate(weighted, files)


def test_a_run_of_households_says_that_it_needs_them(sample_frame):
    with pytest.raises(bnp.MicrodataError, match="takes Households, not a data frame"):
        bnp.sample(bnp.NDPMPM(), sample_frame, key=jax.random.key(0))
