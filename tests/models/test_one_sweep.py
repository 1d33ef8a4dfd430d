"""Every model with every form of data that the command line offers: a sweep leaves the posterior.

What is left out, and where it is tested: mixed membership takes no missing values under structural
zeros; under these it has the uniform prior where every record has a concentration of its own, since
next to nothing may be feasible under the other, and records are drawn until they are; boxes that
cannot be listed, items that do not apply and a fixed number of components have exact answers of
their own (`mixed_membership/test_hdp_variants_exact.py`), and so have relative ages and households
of several sizes (`nested/test_ndpmpm_exact.py`).
"""

import numpy as np
import pytest
from harness import Z_LIMIT
from nested import AGE_GROUPS, tiny_households
from one_sweep import CONDITIONS, households, latent_classes, mixed_membership
from truncated import fit_few_records

from bnp_models import NDPMPM, NPLCM, TNPLCM, HDPMixedMembership, Rules
from bnp_models.models.mixed_membership import sweep
from bnp_models.rules import aged, at_most, exactly, person

LONG = pytest.mark.long
# A smaller alpha_0 than the default's, for which few slots hold nearly all of the mass.
SMALL = {"b0": 3.0, "a": 2.0, "a1": 3.0, "trajectory_steps": 4}
MOVES = SMALL | {"dish_stride": 2, "cell_stride": 1, "split_merge_every": 2, "seating_every": 3}
FEW = SMALL | {"dish_stride": 0, "cell_stride": 0, "split_merge_every": 0, "seating_every": 0}
UNIFORM = {"level_prior": "uniform"}
FLAT = {"components": 3, "a": 1.0, "b": 1.0, "split_merge_every": 2}
# Values of three of six records.
MISSING = ([0, 0, 1, 2], [0, 1, 2, 0])

TWO = [("own", [("head", "0"), ("other", "1")]), ("rent", [("head", "1"), ("other", "0")])] * 2
NESTED = {
    "components": 3, "member_components": 3, "a": 1.0, "b": 1.0, "a_beta": 1.0, "b_beta": 1.0,
    "member_classes": "nested",
}  # fmt: skip
ONE_HEAD = Rules([exactly(1, person(role="head"))])
NO_TWO_OLD = Rules([at_most(1, aged(3))])


def hdp(concentration, how, **data):
    return lambda: mixed_membership(
        HDPMixedMembership(concentration=concentration, **how), **data
    )  # fmt: skip


def classes(model, **data):
    return lambda: latent_classes(model, **data)


def nested(rules=None, head=None, **options):
    return lambda: households(NDPMPM(**NESTED | options), tiny_households(TWO, head, ages=4), rules)


ZEROS = {"conditions": CONDITIONS}
CASES = {
    "hdp": hdp("shared", MOVES),
    "hdp, ordered": hdp("shared", MOVES, tree="ordered"),
    "hdp, groups": hdp("record", MOVES, tree="groups"),
    "hdp, common prior": hdp("hierarchical", MOVES, tree="ordered"),
    "hdp, missing": hdp("shared", MOVES, missing=MISSING),
    "hdp, common prior, missing": hdp("hierarchical", MOVES, missing=MISSING),
    "hdp, zeros": hdp("shared", MOVES, **ZEROS),
    "hdp, zeros, ordered": hdp("shared", MOVES, tree="ordered", **ZEROS),
    "hdp, zeros, groups": hdp("shared", MOVES | UNIFORM, tree="groups", **ZEROS),
    "hdp, zeros, record": hdp("record", FEW | UNIFORM, tree="ordered", **ZEROS),
    "hdp, zeros, common prior": hdp("hierarchical", FEW | UNIFORM, tree="groups", **ZEROS),
    "hdp, zeros, fixed": hdp(
        "shared", MOVES | {"alpha": 0.5, "alpha0": 0.6, "level_shape": 0.8}, tree="groups", **ZEROS
    ),
    "nplcm, missing": classes(NPLCM(**FLAT), missing=MISSING),
    "nplcm, ordered, counts": classes(NPLCM(**FLAT), tree="ordered", counted=9),
    "nplcm, groups, missing": classes(NPLCM(**FLAT), tree="groups", missing=MISSING),
    "tnplcm, ordered, missing": classes(TNPLCM(**FLAT), tree="ordered", missing=MISSING, **ZEROS),
    "tnplcm, groups, missing, counts": classes(
        TNPLCM(**FLAT), tree="groups", missing=MISSING, counted=9, **ZEROS
    ),
    "tnplcm, boxes, groups": classes(
        TNPLCM(augmentation="boxes", **FLAT), tree="groups", missing=MISSING, **ZEROS
    ),
    "tnplcm, by class, groups": classes(
        TNPLCM(truncation="classes", **FLAT), tree="groups", missing=MISSING, **ZEROS
    ),
    "tnplcm, fixed": classes(
        TNPLCM(**FLAT, alpha=0.7, level_shape=0.8), tree="groups", missing=MISSING, **ZEROS
    ),
    "tnplcm, boxes, fixed": classes(
        TNPLCM(augmentation="boxes", **FLAT, alpha=0.7, level_shape=0.8), tree="ordered", **ZEROS
    ),
    "ndpmpm": nested(),
    "ndpmpm, head, fixed": nested(ONE_HEAD, ("role", "head"), alpha=0.7, beta=0.4, level_shape=0.8),
    "ndpmpm, ordered": nested(ordered=("age",)),
    "ndpmpm, groups, beta by class": nested(groups={"age": AGE_GROUPS}, beta="class"),
    "ndpmpm, rules": nested(NO_TWO_OLD, level_prior="uniform"),
    "ndpmpm, head, groups": nested(
        ONE_HEAD, ("role", "head"), groups={"age": AGE_GROUPS}, level_prior="uniform"
    ),
    "ndpmpm, shared, ordered": nested(ordered=("age",), member_classes="shared"),
    "ndpmpm, shared, rules": nested(
        NO_TWO_OLD, level_prior="uniform", member_classes="shared", beta=0.7
    ),
    "ndpmpm, shared, head, groups": nested(
        ONE_HEAD,
        ("role", "head"),
        groups={"age": AGE_GROUPS},
        level_prior="uniform",
        member_classes="shared",
    ),
    "ndpmpm, sizes given": nested(
        NO_TWO_OLD, ordered=("age",), sizes="given", level_prior="uniform"
    ),
}

QUICK = ("hdp, zeros", "ndpmpm, head, groups")


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    fit_few_records(monkeypatch)
    # Fewer than the slots, so that not all components are to choose among.
    monkeypatch.setattr(sweep, "DISH_SLOTS", (6, 6))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[LONG] * (case not in QUICK)) for case in CASES]
)
def test_one_sweep(case):
    """It leaves the joint distribution of parameters and data; a careless one does not."""
    joint = CASES[case]()
    z = joint.scores(1)
    assert np.abs(z).max() < Z_LIMIT, z
    for careless in joint.careless:
        z = joint.scores(2, careless)
        assert np.abs(z).max() > Z_LIMIT, careless
