"""Attack of an intruder who knows all records but one, and sees synthetic files.

For a record x_i, the candidates are x_i itself and every possible record that differs from it in
one variable. If all candidates are equally likely before the files are seen,

    rho_i(x)  proportional to  prod_m E[ L(theta; Y_m) | records with x in the place of x_i ]

where Y_m are the synthetic files and L their likelihood (Hu, Reiter & Wang 2014,
doi:10.1007/978-3-319-11257-2_15; Manrique-Vallier & Hu 2018, doi:10.1111/rssa.12352, section 3.2
and appendix; households and persons within them: Hu, Reiter & Wang 2018, doi:10.1214/16-BA1047,
supplement). The expectations are estimated by importance sampling. It is a worst case that an
intruder knows so much.

There are two estimators. Let g = log L, and r = f(x | theta) / f(x_i | theta), for draws given all
records. The papers estimate E[r e^g] / E[r]; its logarithm follows from the weighted mean and
variance of g. For files of thousands of records, g varies by tens between draws, so that the error
of the logarithm is several units. The second estimator needs a chain for each file, on the sample
with the records of that file added. Since p(theta | X, Y_m) is proportional to
p(theta | X) L(theta; Y_m),

    E[L(theta; Y_m) | x for x_i]  proportional to  E[r | X, Y_m] / E[r | X]

and no likelihood of a file is needed (`refit` runs the chains).
"""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from tqdm import tqdm

from bnp_models.data.arguments import check_kind
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.frames import TABLES, Tabular, code_like
from bnp_models.data.household_schema import HouseholdSchema
from bnp_models.data.households import Households, persons_of
from bnp_models.data.microdata import Microdata, as_records
from bnp_models.data.schema import MicrodataError, errors_in
from bnp_models.data.weight_classes import require_unweighted
from bnp_models.evaluation.attack.bootstrap import (
    Verdict,
    bootstrap_counts,
    centred_likelihoods,
    split_draws,
    weigh_candidates,
)
from bnp_models.evaluation.attack.household_targets import HouseholdTargets
from bnp_models.evaluation.attack.posterior import (
    Posterior,
    Source,
    check_source,
    choose_draws,
    model_of,
)
from bnp_models.evaluation.attack.result import FDR, TOP, AttackRisk
from bnp_models.evaluation.attack.targets import RecordTargets, Targets
from bnp_models.inference.compilation import check_kept
from bnp_models.inference.run import Run
from bnp_models.inference.sampling import sample
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.model import Model, Table
from bnp_models.models.options import typed_key
from bnp_models.rules.rules import Rules
from bnp_models.zeros.structural_zeros import StructuralZeros

ESTIMATORS = ("gamma", "direct", "refit")

TARGETS = ("household", "person")

ATTACKED = (Microdata, Households)
"""Types of samples and files that can be attacked; contingency tables cannot."""

MAX_DRAWS = 1000
"""Default for the largest number of draws that are used."""

# Target size of one array of log ratios, in bytes.
_BYTES_AT_ONCE = 2**26

# Options of models that change how chains move, but not the posterior.
_MOVES = ("augmentation", "reorder", "split_merge_every", "swap")


def attack_risk(
    source: Source,
    table: Tabular,
    synthetic: Tabular | Sequence[Tabular],
    *,
    key: jax.Array,
    conditions: StructuralZeros | Rules | None = None,
    target: str | None = None,
    rows: Sequence[int] | None = None,
    refits: Sequence[Source] | None = None,
    estimator: str | None = None,
    num_datasets: int | None = None,
    num_bootstrap: int = 1000,
    fdr: float = FDR,
    top: Sequence[int] = TOP,
    max_draws: int = MAX_DRAWS,
    records_at_once: int | None = None,
    progress: bool = False,
) -> AttackRisk:
    """Evaluate how probable each record's true values are to an intruder who knows all others.

    Parameters
    ----------
    source
        The chains from which the synthetic files were made: a run that kept its ``parameters``, a
        result of `read_posterior`, or the path of a ``posterior.nc`` of ``bnp-models synthesize``.
    table
        The sample from which the files were made, coded as in the run; or a data frame of it.
    synthetic
        The M files: data frames, or tables with the coding of the sample.
    key
        Key of the bootstrap, and of the simulation of P(possible) if it has no closed form under
        the rules.
    conditions
        Structural zeros or rules of the run. Default: those of a `Run`, otherwise none.
    target
        Unit that is attacked if persons live in households. "household" (the default): candidates
        differ in one variable of the household or of one member. "person": they differ in one
        variable of one person; the intruder knows everything else about the household.
    rows
        Records or persons to attack, by their 0-based row; households by their number. Default:
        those that are unique in the sample, because the intruder already knows the others.
        Incomplete records cannot be attacked.
    refits
        Results of `refit`: chains on the sample with each of the files added. They make the error
        far smaller.
    estimator
        "refit" if there are refits. Otherwise "gamma" (the default), which assumes that -log L is
        gamma distributed with the weighted mean and variance, as in the paper; or "direct", which
        averages L itself and is useful only for a handful of synthetic records.
    num_datasets
        Number of files that were made from these draws. It is needed only if `synthetic` does not
        include all of them and the source does not give their number. The draws from which files
        were made are not used, because the files are far too likely given these draws.
    num_bootstrap
        Bootstrap replicates B; no p-value is below 1 / (B + 1).
    fdr
        False discovery rate at which records are declared safe.
    top
        Ranks k of the hypotheses.
    max_draws
        Use at most about this many draws of each posterior, evenly spaced.
    records_at_once
        Number of records that are processed together; it affects only memory and speed.
    progress
        Show a progress bar on stderr.

    Raises
    ------
    MicrodataError
        If a source has another sample, other conditions or another model, a refit has a model with
        other options, or the synthetic files do not have the sample's columns and levels.
    ValueError
        On settings out of range, or records that cannot be attacked.

    Notes
    -----
    The weights are f(x | theta) / f(x_i | theta), in which the probability that a record is
    possible cancels; in the likelihood of a file it does not. The households of synthetic files are
    drawn given their sizes, so that their likelihood is given the sizes too. If values of members
    are modelled relative to those of the head, the probability of a candidate is that of its codes:
    if the head changes, the codes of all members that are relative to it change, and if a
    member's relationship changes, so do its own codes that depend on it.

    Examples
    --------
    >>> attack = bnp.attack_risk(run, table, files, key=jax.random.key(1), rows=[0, 1])
    >>> attack.num_files, len(attack.records())
    (2, 2)
    """
    key = typed_key(key)
    call = "attack_risk(run, table, synthetic, key=...)"
    check_kind((Run, Posterior, str, PathLike), call, source=source)
    table, synthetic = _coded(call, source, table, synthetic)
    _check_settings(table, target, num_bootstrap, fdr, top, max_draws)
    if not len(synthetic):
        raise ValueError("no synthetic file is given")
    estimator = _checked_estimator(estimator, refits, synthetic)
    posterior, conditions = check_source(source, table, conditions)
    model = model_of(posterior)
    targets = _targets(model, table, conditions, target, rows)
    check_kept(
        "the figures of the attack", 12 * len(targets.rows) * (1 + len(targets.columns)),
        "leave the attack out (--posterior), or attack fewer records (rows=)",
    )  # fmt: skip
    files = [coded_like(frame, table, m) for m, frame in enumerate(synthetic)]
    refitted = _checked_refits(refits or (), model, table, files, conditions)
    if num_datasets is None:
        num_datasets = int(posterior.attributes.get("num_datasets", len(files)))
    draws = choose_draws([posterior, *refitted], [num_datasets, *(0 for _ in refitted)], max_draws)
    key_bootstrap, key_likelihood = Keys(key)
    num_chains = posterior.parameters["log_pi"].shape[0]
    log_l = _log_likelihoods(targets, draws, files, num_chains, key_likelihood, progress)
    blocks = split_draws(log_l)
    weigh = partial(
        weigh_candidates,
        likelihoods=centred_likelihoods(log_l[: len(files)], blocks, estimator),
        present=jnp.asarray(blocks.present),
        counts=bootstrap_counts(key_bootstrap, len(draws), len(blocks.index), num_bootstrap),
        num_draws=log_l[0].size,
        top=tuple(top),
        estimator=estimator,
    )
    in_blocks = [
        {name: jnp.asarray(value[blocks.index.reshape(-1)]) for name, value in part.items()}
        for part in draws
    ]
    verdict = _weigh_all(targets, weigh, in_blocks, len(top), records_at_once, progress)
    return AttackRisk(
        target=targets.target,
        table=table,
        rows=targets.rows,
        columns=targets.columns,
        **verdict._asdict(),
        top=tuple(top),
        fdr=fdr,
        num_files=len(files),
        num_bootstrap=num_bootstrap,
        num_blocks=len(blocks.index),
        block_length=blocks.index.shape[1],
        times_in_block=blocks.times,
        log_likelihood=log_l,
        estimator=estimator,
    )


def refit(
    model: Model,
    table: Tabular,
    synthetic: Tabular | Sequence[Tabular],
    *,
    key: jax.Array,
    conditions: StructuralZeros | Rules | None = None,
    **how: Any,
) -> list[Run]:
    """Run a model's chains on the sample with each synthetic file added, for `attack_risk`.

    Parameters
    ----------
    model, table, conditions
        Model, sample and conditions of the run from which the files were made.
    synthetic
        The M files.
    key
        A key; it is split into one key for each file.
    how
        Further arguments of `bnp_models.sample`.

    Raises
    ------
    MicrodataError
        If a file does not have the sample's columns and levels, or the sample has design weights.

    Notes
    -----
    For households this is an approximation: the households of a file are drawn given their sizes,
    but these chains treat the sizes as random. Therefore the information that the sizes have about
    the classes is used twice.

    Examples
    --------
    >>> small = bnp.synthesize(run, 2, num_rows=2)
    >>> refits = bnp.evaluation.refit(model, table, small, key=jax.random.key(0), **short)
    >>> [chains.table.n for chains in refits]
    [64, 64]
    """
    call = "refit(model, table, synthetic, key=...)"
    check_kind(Model, call, model=model)
    key = typed_key(key)
    table, synthetic = _coded(call, None, table, synthetic)
    require_unweighted(table, "the attack risk")
    files = [coded_like(frame, table, m) for m, frame in enumerate(synthetic)]
    return [
        sample(model, with_file(table, file), key=key_m, conditions=conditions, **how)
        for key_m, file in zip(Keys(key, len(files)), files, strict=True)
    ]


def _coded(call, source, table, synthetic) -> tuple[Microdata | Households, Sequence[Tabular]]:
    """The sample (a data frame is coded like the sample of the source), and a list of the files."""
    check_kind((*ATTACKED, pd.DataFrame), call, table=table)
    if isinstance(source, Run):
        table = code_like(table, source.table)
    files = [synthetic] if isinstance(synthetic, (*TABLES, pd.DataFrame)) else synthetic
    check_kind(Sequence, call, synthetic=files)
    named = {f"synthetic file {m + 1}": file for m, file in enumerate(files)}
    check_kind((*ATTACKED, pd.DataFrame), call, **named)
    table = as_records(table, call, ATTACKED)
    assert not isinstance(table, ContingencyTable)
    return table, files


def check_columns(table: Microdata | Households) -> None:
    """Raise MicrodataError if a variable has the name of a column of `AttackRisk.records`."""
    schema = table.schema
    names = {*persons_of(table).schema.variables}
    if isinstance(schema, HouseholdSchema):
        names |= {schema.household, *schema.household_variables}
    taken = AttackRisk.COLUMNS.intersection(names)
    if taken:
        raise MicrodataError(
            "the table of records (records.csv) has a column of this name; rename the variable",
            column=min(taken),
        )


def _check_settings(table, target, num_bootstrap, fdr, top, max_draws) -> None:
    """Raise ValueError if an option of `attack_risk` is out of range."""
    if isinstance(table, Households):
        if target not in (None, *TARGETS):
            raise ValueError(f"target is one of {', '.join(TARGETS)}, not {target!r}")
    elif target not in (None, "record"):
        raise ValueError(f"target {target!r} is only for households; leave it out")
    check_columns(table)
    if num_bootstrap < 1:
        raise ValueError(f"num_bootstrap must be at least 1, not {num_bootstrap}")
    if not 0 < fdr < 1:
        raise ValueError(f"fdr must be between 0 and 1, not {fdr}")
    if not len(top) or min(top) < 1:
        raise ValueError(f"top needs ranks of at least 1, not {tuple(top)}")
    if max_draws < 2:
        raise ValueError(f"max_draws must be at least 2, not {max_draws}")


def _targets(model, table, conditions, target, rows) -> Targets:
    """Records, households or persons to attack."""
    if isinstance(table, Households):
        return HouseholdTargets(model, table, conditions, target or "household", rows)
    return RecordTargets(table, conditions, rows)


def _checked_refits(refits, model, table, files, conditions) -> list[Posterior]:
    """Draws of each refit, which must have the run's model and its sample with a file added."""
    posteriors = []
    for m, source in enumerate(refits):
        posterior, _ = check_source(source, with_file(table, files[m]), conditions)
        _check_same_model(model, model_of(posterior), m)
        posteriors.append(posterior)
    return posteriors


def _check_same_model(model, other, m):
    """Raise MicrodataError unless a refit has the run's model with options of equal effect."""
    if type(other) is not type(model):
        raise MicrodataError(
            f"refit {m + 1} used the model {other.name}, but the run used {model.name}; refit with "
            "the model of the run"
        )
    options = vars(other)
    for name, value in vars(model).items():
        if name not in _MOVES and options[name] != value:
            raise MicrodataError(
                f"refit {m + 1} used a model with {name} {options[name]}, but the run had {value}; "
                "refit with the same options as the run"
            )


def _checked_estimator(estimator, refits, synthetic) -> str:
    """The given estimator, or the default, which depends on whether there are refits."""
    if estimator is None:
        estimator = "gamma" if refits is None else "refit"
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator is one of {', '.join(ESTIMATORS)}, not {estimator!r}")
    if (estimator == "refit") != (refits is not None):
        raise ValueError('estimator "refit" needs refits, and the other estimators take none')
    if refits is not None and len(refits) != len(synthetic):
        raise ValueError(
            f"there are {len(refits)} refits for {len(synthetic)} synthetic files; give one each"
        )
    return estimator


def _log_likelihoods(targets, draws, files, num_chains, key, progress) -> np.ndarray:
    """(L, chains, draws) log likelihood of each file, then of each file at its refit's draws."""
    key_run, *keys = Keys(key, len(draws))
    log_l = [targets.log_likelihood(draws[0], files, key_run, progress)]
    for refitted, file, key_m in zip(draws[1:], files, keys, strict=False):
        log_l.append(targets.log_likelihood(refitted, [file], key_m, progress))
    return np.concatenate(log_l).reshape(-1, num_chains, len(draws[0]["log_pi"]) // num_chains)


def _weigh_all(targets, weigh, draws, num_ranks, records_at_once, progress) -> Verdict:
    """Verdict on all targets, computed for a part of them at a time."""
    number, width = len(targets.rows), 1 + len(targets.columns)
    rho, errors, shapes = np.full((3, number, width), np.nan, np.float32)
    rank, p_values = np.zeros(number, np.int32), np.zeros((number, num_ranks))
    with tqdm(total=number, desc="attack", disable=not progress) as bar:
        for group in targets.groups():
            size = records_at_once or _records_at_once(group, draws)
            columns = np.concatenate([[0], group.columns + 1])
            for which, padded in _parts(group.which, min(size, len(group.which))):
                arrays, valid = group.prepare(padded)
                ratios = [group.log_ratio(part, *arrays) for part in draws]
                verdict = weigh(jnp.stack(ratios, axis=1), jnp.asarray(valid))
                verdict = Verdict(*(np.asarray(figure)[: len(which)] for figure in verdict))
                for whole, part in zip((rho, errors, shapes), verdict, strict=False):
                    whole[which[:, None], columns] = part
                rank[which], p_values[which] = verdict.rank, verdict.p_values
                bar.update(len(which))
    return Verdict(rho, errors, shapes, rank, p_values)


def _records_at_once(group, draws) -> int:
    """Number of targets of a group whose log ratios fit into memory together."""
    bytes_each = (1 + len(group.columns)) * len(draws) * len(draws[0]["log_pi"]) * 4
    return int(np.clip(_BYTES_AT_ONCE // bytes_each, 1, 1024))


def _parts(which, size):
    """Parts of the positions, each also padded to the same size, to compile for one size only."""
    for start in range(0, len(which), size):
        padding = np.minimum(start + np.arange(size), len(which) - 1)
        yield which[start : start + size], which[padding]


def coded_like(frame: Tabular, table: Table, number: int) -> Table:
    """Code a synthetic file like the sample.

    Parameters
    ----------
    frame
        The file.
    table
        The sample.
    number
        0-based number of the file, for messages.

    Raises
    ------
    MicrodataError
        If variables or levels differ, a value is missing, or a household has a size that no
        household of the sample has.
    """
    with errors_in(f"synthetic file {number + 1}"):
        made = code_like(frame, table)
        if made.schema != table.schema:
            raise MicrodataError("has other variables or levels than the sample")
        if isinstance(made, Households):
            assert isinstance(table, Households)
            if not np.isin(made.sizes, table.sizes).all():
                raise MicrodataError(
                    "has households of sizes that the sample does not have, so that it was not "
                    "made from this sample"
                )
        made.require_complete("the attack")
    return made


def with_file(table: Table, file: Table) -> Microdata | Households:
    """Add a synthetic file to the sample: a table of the same type."""
    if isinstance(table, Households):
        assert isinstance(file, Households)
        return Households(
            table.schema,
            np.concatenate([table.household_codes, file.household_codes]),
            np.concatenate([table.sizes, file.sizes]),
            np.concatenate([table.member_codes, file.member_codes]),
        )
    assert isinstance(table, Microdata) and isinstance(file, Microdata)
    return Microdata(table.schema, np.concatenate([table.codes, file.codes]))
