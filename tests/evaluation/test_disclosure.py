"""Disclosure by keys: an example by hand, and another implementation, record by record."""

import numpy as np
import pandas as pd
import pytest
from dependent import SCHEMA

import bnp_models as bnp

KEYS = ("age", "sex")


def table(rows):
    """Records of age, sex and illness."""
    levels = {"age": ["old", "young"], "sex": ["f", "m"], "illness": ["no", "yes"]}
    frame = pd.DataFrame([row.split() for row in rows], columns=list(levels))
    return bnp.Microdata.from_frame(frame, levels=levels)


def test_an_example_by_hand():
    """Old women are all ill in both files, young men in the synthetic one only; old men differ."""
    original = table(
        ["old f yes"] * 3 + ["young m no", "young m yes", "young f no", "old m no", "old m yes"]
    )
    synthetic = table(["old f yes"] * 2 + ["young m yes"] * 2 + ["old m no", "young f yes"])
    found = bnp.evaluation.disclosure(original, [synthetic], KEYS)
    assert found.keys == KEYS
    assert found.unique_in_original == 1 / 8  # the young woman
    assert found.unique_in_synthetic == 2 / 6  # she, and the old man
    assert found.replicated_uniques == 1 / 8
    (of_illness,) = found.targets
    assert of_illness.target == "illness"
    assert of_illness.in_original == 4 / 8  # old and young women
    assert of_illness.in_synthetic == 1
    assert of_illness.disco == 5 / 8  # three old women, a young man, an old one
    assert of_illness.disclosive_in_both == 3 / 8


def test_a_unique_that_occurs_twice_is_not_replicated():
    original = table(["old f yes", "old m no", "young m no", "young m yes"])
    synthetic = [table(["old f yes", "old f no", "old m no", "young f no"]), original]
    assert (
        bnp.evaluation.disclosure(original, synthetic, KEYS).replicated_uniques
        == (1 / 4 + 2 / 4) / 2
    )


def test_the_original_itself_discloses_what_it_does():
    original = table(["old f yes"] * 3 + ["young m no", "young m yes", "young f no"])
    of_illness = bnp.evaluation.disclosure(original, [original] * 2, KEYS).targets[0]
    assert of_illness.disco == of_illness.in_original == of_illness.in_synthetic == 4 / 6


def record_by_record(original, synthetic, keys, target):
    """The same figures from dictionaries of the values that each combination of keys has."""

    def values_of(frame):
        found = {}
        for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
            found.setdefault(tuple(row[k] for k in keys), []).append(row[target])
        return found

    of_original, of_synthetic = values_of(original), values_of(synthetic)
    single = {k: v[0] for k, v in of_synthetic.items() if len(set(v)) == 1}
    disco = sum(v.count(single[k]) for k, v in of_original.items() if k in single)
    both = sum(
        len(v) for k, v in of_original.items() if len(set(v)) == 1 and single.get(k, "") == v[0]
    )
    alone = [k for k, v in of_original.items() if len(v) == 1]
    repeated = sum(len(of_synthetic.get(k, [])) == 1 for k in alone)
    return np.array([disco, both, len(alone), repeated]) / len(original)


def test_another_implementation(files):
    original, synthetic, _ = files
    names = SCHEMA.variables
    codes = np.array(synthetic[0].codes)
    codes[::7, 1] = -1
    made = [*synthetic[:2], bnp.Microdata(SCHEMA, codes)]
    found = bnp.evaluation.disclosure(original, made, names[:2])
    assert [part.target for part in found.targets] == list(names[2:])
    for part in found.targets:
        expected = np.mean(
            [
                record_by_record(original.to_frame(), file.to_frame(), names[:2], part.target)
                for file in made
            ],
            axis=0,
        )
        figures = part.disco, part.disclosive_in_both
        np.testing.assert_allclose(figures, expected[:2], rtol=1e-12)
        uniques = found.unique_in_original, found.replicated_uniques
        np.testing.assert_allclose(uniques, expected[2:], rtol=1e-12)


def test_unknown_names_are_refused(files):
    original, synthetic, _ = files
    names = SCHEMA.variables
    with pytest.raises(bnp.MicrodataError, match="unknown variable"):
        bnp.evaluation.disclosure(original, synthetic, ["height"])
    with pytest.raises(ValueError, match="both a key and a target"):
        bnp.evaluation.disclosure(original, synthetic, names[:2], names[:1])
    with pytest.raises(ValueError, match="at least one key"):
        bnp.evaluation.disclosure(original, synthetic, [])
