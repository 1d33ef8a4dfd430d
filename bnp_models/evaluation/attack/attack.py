"""What an intruder who knows all records but one can tell of that one from synthetic files.

For a record x_i the intruder weighs x_i itself and every possible record that differs from it in
one variable. With all of them equally likely beforehand,

    rho_i(x)  proportional to  prod_m E[ L(theta; Y_m) | records with x in the place of x_i ]

where Y_m are the synthetic files and L their likelihood (Hu, Reiter & Wang 2014,
doi:10.1007/978-3-319-11257-2_15; Manrique-Vallier & Hu 2018, doi:10.1111/rssa.12352, section 3.2
and appendix; households and persons within them: Hu, Reiter & Wang 2018, doi:10.1214/16-BA1047,
supplement). The expectations are importance sampling estimates. That an intruder knows so much is
a worst case.

Two estimates. With g = log L and the ratio r = f(x | theta) / f(x_i | theta) of a draw given all
records, the papers' needs E[r e^g] / E[r], whose logarithm they take from the weighted mean and
variance of g: with files of thousands of records g varies by tens, and so does the error by several
units. The other needs a chain for each file with that file's records added to the sample: as
p(theta | X, Y_m) is proportional to p(theta | X) L(theta; Y_m),

    E[L(theta; Y_m) | x for x_i]  proportional to  E[r | X, Y_m] / E[r | X]

in which no likelihood of a file occurs (`refit` makes the chains).
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from os import PathLike

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from tqdm import tqdm

from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import MicrodataError
from bnp_models.evaluation.attack.bootstrap import (
    BYTES_AT_ONCE,
    blocks_of_trace,
    bootstrap_counts,
    judge_targets,
    values_of_draws,
)
from bnp_models.evaluation.attack.household_targets import HouseholdTargets
from bnp_models.evaluation.attack.posterior import Posterior, check_source, model_of
from bnp_models.evaluation.attack.record_targets import RecordTargets
from bnp_models.evaluation.attack.result import FDR, TOP, AttackRisk, with_file
from bnp_models.inference.run import Run, spaced_positions
from bnp_models.inference.sampling import sample
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

ESTIMATORS = ("gamma", "direct", "refit")

TARGETS = ("household", "person")

MAX_DRAWS = 1000
"""Draws used, by default."""

# Options of models that change how chains move, but not where to.
_MOVES = ("augmentation", "reorder", "split_merge_every", "swap")


def attack_risk(
    source: Run | Posterior | str | PathLike,
    table: Microdata | Households,
    synthetic: Sequence[pd.DataFrame | Microdata | Households],
    *,
    key: jax.Array,
    conditions: StructuralZeros | Rules | None = None,
    target: str | None = None,
    rows: Sequence[int] | None = None,
    refits: Sequence[Run | Posterior | str | PathLike] | None = None,
    estimator: str | None = None,
    num_datasets: int | None = None,
    num_bootstrap: int = 1000,
    fdr: float = FDR,
    top: Sequence[int] = TOP,
    max_draws: int = MAX_DRAWS,
    records_at_once: int | None = None,
    progress: bool = False,
) -> AttackRisk:
    """Probabilities that an intruder who knows the sample but for one record gives to that one.

    Parameters
    ----------
    source
        The chains that the synthetic files come from: a run that kept its ``parameters``, what
        `read_posterior` returns, or the path of a ``posterior.nc`` of ``bnp-models synthesize``.
    table
        The sample that was synthesised, coded as it was then.
    synthetic
        The M files: frames, or tables coded as the sample is.
    key
        For the bootstrap, and for P(possible) where rules give it no closed form.
    conditions
        Structural zeros or rules, those of the run; by default none, or what a `Run` holds.
    target
        Of persons within households, "household" (the default: one variable of the household or
        of one member is wrong) or "person" (one variable of one person is, everything else of the
        household being known).
    rows
        Records or persons to attack, by their 0-based row; households by their number. Default:
        those that are alone with their values in the sample, as the others are known already.
        Incomplete ones cannot be attacked.
    refits
        Chains on the sample with each of the files added, from `refit`: a far smaller error.
    estimator
        "refit" with refits. Without, "gamma" (the default), which takes -log L to be gamma
        distributed with the weighted mean and variance, as the paper; or "direct", which averages
        L itself, of use for a handful of synthetic records only.
    num_datasets
        Files that were made from these draws, if `synthetic` is not all of them and the source does
        not say it. The draws that they came from are left out: to those the files look far too
        likely.
    num_bootstrap
        Bootstrap replicates B; no p-value is below 1 / (B + 1).
    fdr
        False discovery rate at which records are declared safe.
    top
        Ranks k of the hypotheses.
    max_draws
        Use about so many draws of each posterior at most, evenly spaced.
    records_at_once
        Records treated together; changes nothing but memory and speed.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    MicrodataError
        If a source is of another sample, other conditions or another model, a refit of a model with
        other options, or the synthetic files do not have the sample's columns and levels.
    ValueError
        On settings out of range, or records that cannot be attacked.

    Notes
    -----
    A bootstrap replicate takes blocks of consecutive draws with replacement, of at least five
    autocorrelation times of log L where there are enough draws; the same blocks serve all records
    and candidates. H(i, k), that the truth ranks among the first k, is tested by the k-th largest
    log odds against the truth in units of its standard error, compared with the largest error among
    the other candidates in each replicate: a rank that is poor by Monte Carlo error only is not
    rejected, whereas the share of replicates with a rank of at most k would be small wherever that
    error is large. The p-values are adjusted over records by Benjamini & Hochberg, and a record
    whose hypothesis is not rejected is at risk: noisy draws make more records at risk, not fewer.

    Weights are f(x | theta) / f(x_i | theta): the probability of a possible record is a constant
    over both. The likelihood of a file contains it. Households of synthetic files are drawn given
    their sizes, and so is their likelihood. Where members' values are relative to the head's, a
    candidate is as likely as what it is coded as: with another head all members are coded anew.
    """
    _check_settings(table, target, num_bootstrap, fdr, top, max_draws)
    if not len(synthetic):
        raise ValueError("no synthetic file is given")
    estimator = _checked_estimator(estimator, refits, table, synthetic)
    posterior, conditions = check_source(source, table, conditions)
    model = model_of(posterior)
    if isinstance(table, Households):
        targets = HouseholdTargets(model, table, conditions, target or "household", rows)
    else:
        targets = RecordTargets(table, conditions, rows)
    files = [_coded(frame, table, m) for m, frame in enumerate(synthetic)]
    if num_datasets is None:
        num_datasets = int(posterior.attributes.get("num_datasets", len(files)))
    posteriors, used = [posterior], [num_datasets]
    for m, one in enumerate(refits or ()):
        posteriors.append(check_source(one, with_file(table, files[m]), conditions)[0])
        _check_same_model(model, model_of(posteriors[-1]), m)
        used.append(0)
    draws = _chosen_draws(posteriors, used, max_draws)
    key_bootstrap, key_possible = jax.random.split(key)
    log_l = [targets.log_likelihood(draws[0], files, key_possible, progress)]
    for own, file in zip(draws[1:], files, strict=False):
        log_l.append(targets.log_likelihood(own, [file], key_possible, progress))
    num_chains = posterior.parameters["log_pi"].shape[0]
    log_l = np.concatenate(log_l).reshape(-1, num_chains, len(draws[0]["log_pi"]) // num_chains)
    index, present, times = blocks_of_trace(log_l)
    judge = partial(
        judge_targets, present=jnp.asarray(present), num_draws=log_l[0].size, top=tuple(top),
        counts=bootstrap_counts(key_bootstrap, len(posteriors), len(index), num_bootstrap),
        estimator=estimator, **values_of_draws(log_l[: len(files)], index, present, estimator),
    )  # fmt: skip
    padded = [
        {name: jnp.asarray(value[index.reshape(-1)]) for name, value in own.items()}
        for own in draws
    ]
    number, width = len(targets.rows), 1 + len(targets.columns)
    rho, errors, shapes = np.full((3, number, width), np.nan, np.float32)
    rank, p_values = np.zeros(number, np.int32), np.zeros((number, len(top)))
    with tqdm(total=number, desc="attack", disable=not progress) as bar:
        for group in targets.groups():
            per_record = (1 + len(group.columns)) * len(draws) * index.size * 4
            at_once = records_at_once or int(np.clip(BYTES_AT_ONCE // per_record, 1, 1024))
            at_once = min(at_once, len(group.which))
            of_group = np.concatenate([[0], group.columns + 1])
            for start in range(0, len(group.which), at_once):
                which = group.which[start : start + at_once]
                # The last part repeats a record, so that one compiled shape serves all.
                padding = np.minimum(start + np.arange(at_once), len(group.which) - 1)
                arrays, valid = group.prepare(group.which[padding])
                ratios = [group.log_ratio(own, *arrays) for own in padded]
                found = judge(jnp.stack(ratios, axis=1), jnp.asarray(valid))
                found = [np.asarray(x)[: len(which)] for x in found]
                for whole, part in zip((rho, errors, shapes), found, strict=False):
                    whole[which[:, None], of_group] = part
                rank[which], p_values[which] = found[3:]
                bar.update(len(which))
    return AttackRisk(
        target=targets.target, table=table, rows=targets.rows, columns=targets.columns, rho=rho,
        standard_error=errors, pareto_k=shapes, rank=rank, p_values=p_values, top=tuple(top),
        fdr=fdr, num_files=len(files), num_bootstrap=num_bootstrap, num_blocks=len(index),
        block_length=index.shape[1], times_in_block=times, log_likelihood=log_l,
        estimator=estimator, impossible_weight=getattr(model, "impossible_weight", 1),
    )  # fmt: skip


def refit(
    model,
    table: Microdata | Households,
    synthetic: Sequence[pd.DataFrame | Microdata | Households],
    *,
    key: jax.Array,
    conditions: StructuralZeros | Rules | None = None,
    **how,
) -> list[Run]:
    """Run a model's chains on the sample with each synthetic file added: for `attack_risk`.

    Parameters
    ----------
    model, table, conditions
        Those of the run that the files come from.
    synthetic
        The M files.
    key
        Split, one for each file.
    how
        Further arguments of `bnp_models.sample`.

    Raises
    ------
    MicrodataError
        If a file does not have the sample's columns and levels.

    Notes
    -----
    Households are an approximation: those of a file are drawn given their sizes, and count here as
    households whose sizes say something too. What sizes say of classes is then heard twice.
    """
    files = [_coded(frame, table, m) for m, frame in enumerate(synthetic)]
    keys = jax.random.split(key, len(files))
    return [
        sample(model, with_file(table, file), key=own, conditions=conditions, **how)
        for own, file in zip(keys, files, strict=True)
    ]


def _check_settings(table, target, num_bootstrap, fdr, top, max_draws):
    if isinstance(table, Households):
        if target not in (None, *TARGETS):
            raise ValueError(f"target is one of {', '.join(TARGETS)}, not {target!r}")
        names = {table.schema.household, *table.schema.table.variables}
        names |= {*table.schema.household_variables}
    else:
        if target not in (None, "record"):
            raise ValueError(f"target {target!r} is of households; leave it out")
        names = set(table.schema.variables)
    taken = AttackRisk.COLUMNS.intersection(names)
    if taken:
        raise ValueError(f"rename the variable {min(taken)!r}: the table of records has its own")
    if num_bootstrap < 1:
        raise ValueError(f"num_bootstrap must be at least 1, not {num_bootstrap}")
    if not 0 < fdr < 1:
        raise ValueError(f"fdr must be between 0 and 1, not {fdr}")
    if not len(top) or min(top) < 1:
        raise ValueError(f"top needs ranks of at least 1, not {tuple(top)}")
    if max_draws < 2:
        raise ValueError(f"max_draws must be at least 2, not {max_draws}")


def _check_same_model(model, other, m):
    """Refits are weighed against the run, and so are of its posterior, whatever their moves."""
    for field in fields(model):
        name = field.name
        if name not in _MOVES and getattr(model, name) != getattr(other, name):
            raise MicrodataError(
                f"refit {m + 1} is of a model with {name} {getattr(other, name)}, the run with "
                f"{getattr(model, name)}; refit with the run's"
            )


def _checked_estimator(estimator, refits, table, synthetic):
    """The estimator that is asked for, by name or by the refits that are given."""
    if estimator is None:
        estimator = "gamma" if refits is None else "refit"
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator is one of {', '.join(ESTIMATORS)}, not {estimator!r}")
    if (estimator == "refit") != (refits is not None):
        raise ValueError('estimator "refit" goes with refits, and no other one does')
    if refits is not None:
        if len(refits) != len(synthetic):
            raise ValueError(f"{len(refits)} refits for {len(synthetic)} synthetic files")
    return estimator


def _coded(frame, table, m):
    """A synthetic file with the codes of the sample."""
    try:
        if isinstance(frame, Microdata | Households):
            made = frame
            if made.schema != table.schema:
                raise MicrodataError("has other variables or levels than the sample")
        elif isinstance(table, Households):
            schema = table.schema
            made = Households.from_frame(
                frame, schema.household, schema.household_level,
                (schema.household, *schema.table.variables), schema.table, schema.head,
            )  # fmt: skip
            if made.schema != schema:
                raise MicrodataError("has other variables or levels than the sample")
        else:
            made = Microdata.from_frame(frame, table.schema.variables, table.schema)
        if isinstance(made, Households) and not np.isin(made.sizes, table.sizes).all():
            raise MicrodataError(
                "has households of sizes that the sample has not, so it was not made from it"
            )
        made.require_complete("the attack")
    except MicrodataError as error:
        raise error.in_file(f"synthetic file {m + 1}") from None
    return made


def _chosen_draws(posteriors, used, max_draws):
    """Of each posterior, the parameters at as many draws of each chain, none that made a file."""
    shapes = [posterior.parameters["log_pi"].shape[:2] for posterior in posteriors]
    num_chains = shapes[0][0]
    if any(shape[0] != num_chains for shape in shapes):
        raise ValueError("the refits have another number of chains than the run")
    left = []
    for (_, num_draws), number in zip(shapes, used, strict=True):
        made = set(spaced_positions(num_chains, num_draws, number)) if number else set()
        left.append([
            [d for d in range(num_draws) if (chain, d) not in made] for chain in range(num_chains)
        ])  # fmt: skip
    number = min(max(max_draws // num_chains, 1), *(len(own) for part in left for own in part))
    if number * num_chains < 2:
        raise ValueError(
            f"{num_chains * shapes[0][1]} draws, of which {used[0]} made a synthetic file, are too "
            "few"
        )
    chosen = []
    for posterior, part in zip(posteriors, left, strict=True):
        draw = np.array([
            np.array(own)[np.linspace(0, len(own) - 1, number).round().astype(int)] for own in part
        ])  # fmt: skip
        chain = np.arange(num_chains)[:, None]
        chosen.append({
            name: value[chain, draw].reshape(-1, *value.shape[2:])
            for name, value in posterior.parameters.items()
        })  # fmt: skip
    return chosen
