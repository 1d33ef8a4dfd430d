"""Synthetic and completed data sets from the draws of a run, and how to combine what they say.

Data set m comes from the parameters of one kept draw, and the draws used are far apart, so that the
spread between data sets is the model's uncertainty (Manrique-Vallier & Hu 2018,
doi:10.1111/rssa.12352, section 2.4). Records are drawn feasible, none is rejected, and all are
checked against the conditions before they leave.
"""

import itertools
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

from bnp_models.households import Households
from bnp_models.microdata import Microdata
from bnp_models.sampling import Run, blocks_of_draws, prepared

# Records simulated at once: at most so many, and entries of the arrays of boxes by records.
_RECORDS_AT_ONCE = 2**15
_ENTRIES_AT_ONCE = 2**25

# Households simulated at once at most, and those of one size without a possible one among them
# after which nothing is hoped for.
_HOUSEHOLDS_AT_ONCE, _MAX_TRIED = 2**15, 1e8

# What the keys that a run set aside are folded with, one a purpose.
_SYNTHESIS, _IMPUTATION = 0x53594E, 0x494D50


def synthesize(
    run: Run, num_datasets: int = 5, num_rows: int | None = None, *, key: jax.Array | None = None
) -> list[pd.DataFrame]:
    """Draw completely synthetic data sets.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``. The sample may have missing values, which
        synthetic data have not.
    num_datasets
        M, one for each of as many well-separated draws.
    num_rows
        Records of each; by default as many as the sample has. Of households none other: there are
        as many of each size as in the sample.
    key
        By default one that `run` set aside.

    Returns
    -------
    frames
        Of the sample's columns and labels, in the sample's types; households by size, numbered
        anew.

    Raises
    ------
    ValueError
        If there are fewer draws than data sets, or `run` kept no parameters.
    RuntimeError
        If a record breaks a condition, which would be a defect.

    Notes
    -----
    Estimates from the M files are combined by `combine_partially_synthetic`.
    """
    if isinstance(run.table, Households):
        return _synthesize_households(run, num_datasets, num_rows, key)
    num_rows = run.table.n if num_rows is None else num_rows
    if num_rows < 1:
        raise ValueError(f"num_rows must be at least 1, not {num_rows}")
    key = jax.random.fold_in(run.key if key is None else key, _SYNTHESIS)
    feasible = run.feasible_sets
    num_boxes = 1 if feasible is None else len(feasible)
    batch = _ENTRIES_AT_ONCE // (num_boxes + run.capacity)
    batch = min(num_rows, max(256, min(batch, _RECORDS_AT_ONCE)))
    frames = []
    for m, draw in enumerate(_spaced_draws(run, num_datasets)):
        key_m = jax.random.fold_in(key, m)
        keys = (jax.random.fold_in(key_m, b) for b in range(-(-num_rows // batch)))
        codes = [
            np.asarray(
                _simulate(run.model, key_b, draw, feasible, num_records=batch,
                          num_levels=run.num_levels)
            )
            for key_b in keys
        ]  # fmt: skip
        codes = np.concatenate(codes, axis=1).T[:num_rows]
        codes = codes if run.coding is None else run.coding.expand(codes)
        frames.append(_checked_frame(run, codes))
    return frames


def impute(run: Run, num_datasets: int = 5, *, key: jax.Array | None = None) -> list[pd.DataFrame]:
    """Complete the missing values of the sample, several times.

    Parameters
    ----------
    run
        Chains of a model that takes missing values, which kept its ``parameters``.
    num_datasets
        M, one for each of as many well-separated draws.
    key
        By default one that `run` set aside.

    Returns
    -------
    frames
        The sample with its missing values filled in, all those of a record at once: what was
        observed is unchanged, and every record is feasible.

    Raises
    ------
    ValueError
        If nothing is missing, the model takes no missing values, there are fewer draws than data
        sets, or `run` kept no parameters.
    RuntimeError
        If a record breaks a condition or an observed value changed, which would be a defect.

    Notes
    -----
    Estimates from the M files are combined by `combine_imputed`.
    """
    table, model = run.table, run.model
    if not table.has_missing:
        raise ValueError("no value is missing: there is nothing to impute")
    if not model.takes_missing:
        raise ValueError(f"the {model.name} model does not draw missing values")
    if isinstance(table, Households):
        return _impute_households(run, num_datasets)
    key = jax.random.fold_in(run.key if key is None else key, _IMPUTATION)
    data = model.prepare(table.codes, table.schema.num_levels, run.conditions)
    observed = table.codes >= 0
    frames = []
    for m, draw in enumerate(_spaced_draws(run, num_datasets)):
        codes = np.asarray(_complete(model, jax.random.fold_in(key, m), draw, data)).T
        if (codes != table.codes)[observed].any():
            raise RuntimeError("an observed value was changed; please report this defect")
        frames.append(_checked_frame(run, codes))
    return frames


def _synthesize_households(run, num_datasets, num_rows, key):
    """Households of each size, as many as in the sample, for each of as many draws."""
    table, model = run.table, run.model
    if num_rows is not None and num_rows != table.num_persons:
        raise ValueError(
            f"num_rows is {num_rows}, but synthetic households have the sizes of the sample's, "
            f"which make {table.num_persons} persons; leave it out"
        )
    key = jax.random.fold_in(run.key if key is None else key, _SYNTHESIS)
    data = prepared(model, table, run.conditions)
    lanes = int(np.clip(2 * table.n, 256, _HOUSEHOLDS_AT_ONCE))
    frames = []
    for m, draw in enumerate(_spaced_draws(run, num_datasets)):
        key_m = jax.random.fold_in(key, m)
        codes, members, member_codes = _draw_households(model, key_m, draw, data, lanes)
        if data.relative is not None:
            heads = codes[np.repeat(np.arange(len(members)), members)]
            member_codes = data.relative.decode(heads, member_codes[:, None])[:, 0]
        made = Households(table.schema, codes, members + table.schema.num_heads, member_codes)
        frames.append(_checked_households(run, made))
    return frames


def _draw_households(model, key, draw, data, lanes):
    """Household codes, members of each, and member codes: possible ones, until all are there."""
    sizes, wanted = (np.array(x) for x in zip(*data.blocks, strict=True))
    tried, found = np.zeros(len(wanted)), np.zeros_like(wanted)
    households = [[] for _ in wanted]
    for step in itertools.count():
        left = wanted - found
        if not left.any():
            break
        hopeless = (found == 0) & (tried > _MAX_TRIED)
        if hopeless.any():
            raise RuntimeError(
                f"no possible household with {sizes[hopeless][0]} members among "
                f"{int(tried[hopeless][0]):,} simulated; look for rules that exclude too much"
            )
        share = left * (tried + 1) / (found + 0.5)
        new, good = _simulate_households(
            model, jax.random.fold_in(key, step), draw, data, share / share.sum(), lanes=lanes
        )
        new, good = jax.tree.map(np.asarray, (new, good))
        tried += np.bincount(new.size[new.used], minlength=len(sizes))
        for i in np.flatnonzero(left):
            for lane in np.flatnonzero(good & (new.size == i))[: left[i]]:
                head = [] if new.head is None else [new.head[1][:, lane, None]]
                others = new.first[lane] + np.arange(sizes[i] - len(head))
                members = np.concatenate([*head, new.members[:, others]], axis=1)
                households[i].append((new.codes[:-1, lane], members.T))
            found[i] = len(households[i])
    codes, members = zip(*(one for of_size in households for one in of_size), strict=True)
    return np.stack(codes), np.repeat(sizes, wanted), np.concatenate(members)


def _impute_households(run, num_datasets):
    """The sample with the missing values of as many draws filled in."""
    table = run.table
    data = prepared(run.model, table, run.conditions)
    order, of_member = table.order_by_size
    (of_codes, household), (of_values, member) = map(
        np.asarray, (data.at_household, data.at_member)
    )
    frames = []
    for draw in _spaced_draws(run, num_datasets):
        values = np.asarray(draw["completed"])
        codes, members = table.household_codes.copy(), table.member_codes.copy()
        codes[order[household], of_codes] = values[: household.size]
        heads = codes[table.member_household]
        if data.relative is not None:
            members = data.relative.encode(heads, members[:, None])[:, 0]
        members[of_member[member], of_values] = values[household.size :]
        if data.relative is not None:
            members = data.relative.decode(heads, members[:, None])[:, 0]
        made = Households(table.schema, codes, table.sizes, members, table.ids, table.rows)
        frames.append(_checked_households(run, made))
    return frames


def _checked_households(run, made: Households):
    if run.conditions is not None and not (possible := run.conditions.check(made)).all():
        raise RuntimeError(
            f"{int((~possible).sum())} of {made.n} households made are impossible; please report "
            "this defect"
        )
    return made.to_frame()


@dataclass(frozen=True, eq=False)
class Margins:
    """Probabilities of the levels of each variable, for a new record, given thinned draws."""

    names: tuple[str, ...]
    """"margin VARIABLE=LEVEL" of each."""
    draws: np.ndarray
    """(chains, draws, R) float64."""
    thin: int
    """Every how many of the run's draws were evaluated."""


def level_margins(run: Run, max_draws: int = 200) -> Margins:
    """Evaluate the margins of feasible records, which convergence is judged by.

    Parameters
    ----------
    run
        Chains of a latent class model, which kept its ``parameters``.
    max_draws
        At most so many draws of each chain are evaluated.
    """
    schema = run.table.schema
    thin = -(-run.settings.num_samples // max_draws)
    draws = run.parameters(thin)
    num_chains, num_draws = draws["alpha"].shape
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    total, blocks, feasible = num_chains * num_draws, [], run.feasible_sets
    for _, padded in blocks_of_draws(total):
        here = {name: value[padded] for name, value in draws.items()}
        blocks.append(np.asarray(_levels(run.model, here, feasible, num_levels=schema.num_levels)))
    values = np.concatenate(blocks)[:total].astype(np.float64)
    names = [
        f"margin {variable}={label}"
        for variable, labels in zip(schema.variables, schema.levels, strict=True)
        for label in labels
    ]
    return Margins(tuple(names), values.reshape(num_chains, num_draws, len(names)), thin)


class Combined(NamedTuple):
    """A point estimate from several data sets, its variance and its degrees of freedom."""

    estimate: np.ndarray
    variance: np.ndarray
    df: np.ndarray

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the t interval of this confidence level."""
        from scipy.special import stdtrit

        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, not {level}")
        half = stdtrit(self.df, (1 + level) / 2) * np.sqrt(self.variance)
        return self.estimate - half, self.estimate + half


def combine_partially_synthetic(q, u) -> Combined:
    """Combine estimates from synthetic files as large as the sample: the rule for `synthesize`.

    T = ubar + b / M with (M - 1) (1 + M ubar / b)^2 degrees of freedom, where ubar is the mean of
    the variances within files and b the variance between their estimates.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, as computed from each file as if it were the sample.

    Notes
    -----
    Meant for files with some values of the sample replaced, it holds as well where all are, if each
    file has as many records as the sample and its own draw of the parameters given the sample: the
    variance within a file then stands for that of the sample's own estimate. `synthesize` with its
    default number of rows makes such files. With other numbers of rows, multiply `u` by rows / n,
    or use `combine_fully_synthetic`, which needs more files for a steady variance.

    References
    ----------
    Reiter, J. P. (2003), Inference for partially synthetic, public use microdata sets, Survey
    Methodology 29. Reiter, J. P. & Raghunathan, T. E. (2007), doi:10.1198/016214507000000932.
    Raab, G. M., Nowok, B. & Dibben, C. (2016), doi:10.29012/jpc.v7i3.407, on complete synthesis.
    """
    num, estimate, within, between = _moments(q, u)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = (num - 1) * (1 + num * within / between) ** 2
    return Combined(estimate, within + between / num, np.where(between > 0, df, np.inf))


def combine_fully_synthetic(q, u, rows_per_record: float = 1.0) -> Combined:
    """Combine estimates from synthetic files of any size by the rule for fully synthetic data.

    T = (1 + 1 / M) b - ubar, with (M - 1) (1 - ubar / ((1 + 1 / M) b))^2 degrees of freedom. Where
    this is not positive, ubar times `rows_per_record` and M - 1 take their place.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, as computed from each file.
    rows_per_record
        Records of a synthetic file for each record of the sample.

    Notes
    -----
    Right for files of any size drawn as a sample of a new population, as `synthesize` makes them;
    but T is a difference, often negative at M below 20, and then this variance is a makeshift. For
    files of the sample's size `combine_partially_synthetic` estimates the same variance with far
    less noise. It is wrong for files that keep values of the sample.

    References
    ----------
    Raghunathan, T. E., Reiter, J. P. & Rubin, D. B. (2003), Multiple imputation for statistical
    disclosure limitation, Journal of Official Statistics 19, 1-16. Reiter, J. P. (2002), Journal of
    Official Statistics 18, 531-543: the variance that is not negative, and degrees of freedom.
    """
    num, estimate, within, between = _moments(q, u)
    variance = (1 + 1 / num) * between - within
    usable = variance > 0
    ratio = within / np.where(usable, (1 + 1 / num) * between, 1)
    df = np.where(usable, (num - 1) * (1 - ratio) ** 2, num - 1)
    return Combined(estimate, np.where(usable, variance, rows_per_record * within), df)


def combine_imputed(q, u, complete_df: float | None = None) -> Combined:
    """Combine estimates from completed files: the rule for `impute`.

    T = ubar + (1 + 1 / M) b.

    Parameters
    ----------
    q, u
        (M, ...) estimates and their variances, as computed from each file.
    complete_df
        Degrees of freedom if nothing were missing, such as n - 1 for a mean; infinite by default.

    Notes
    -----
    Not for synthetic files: it would count the variance of their parameters twice.

    References
    ----------
    Rubin, D. B. (1987), doi:10.1002/9780470316696, chapter 3. Barnard, J. & Rubin, D. B. (1999),
    doi:10.1093/biomet/86.4.948: degrees of freedom in small samples.
    """
    num, estimate, within, between = _moments(q, u)
    added = (1 + 1 / num) * between
    variance = within + added
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(variance > 0, added / variance, 0)
        df = np.where(lost > 0, (num - 1) / lost**2, np.inf)
        if complete_df is not None:
            observed = (complete_df + 1) / (complete_df + 3) * complete_df * (1 - lost)
            df = 1 / (1 / df + 1 / observed)
    return Combined(estimate, variance, df)


def _moments(q, u):
    q, u = np.asarray(q, np.float64), np.asarray(u, np.float64)
    if q.shape != u.shape:
        raise ValueError(f"q and u have shapes {q.shape} and {u.shape}; expected the same")
    if q.ndim == 0 or len(q) < 2:
        raise ValueError("estimates of at least two data sets are needed, along the first axis")
    if (u < 0).any():
        raise ValueError("u holds variances, and one is negative")
    return len(q), q.mean(axis=0), u.mean(axis=0), q.var(axis=0, ddof=1)


def spaced_positions(num_chains: int, num_draws: int, number: int) -> list[tuple[int, int]]:
    """Chain and draw of each of `number` draws, evenly spaced over all: those of the data sets."""
    total = num_chains * num_draws
    return [divmod((2 * m + 1) * total // (2 * number), num_draws) for m in range(number)]


def _spaced_draws(run, number):
    """Parameters of `number` draws, evenly spaced over all chains and draws."""
    draws = run.parameters()
    num_chains, num_draws = draws["alpha"].shape
    total = num_chains * num_draws
    if not 1 <= number <= total:
        raise ValueError(
            f"num_datasets must be from 1 to the number of draws kept, {total}, not {number}"
        )
    for chain, position in spaced_positions(num_chains, num_draws, number):
        yield {name: value[chain, position] for name, value in draws.items()}


def _checked_frame(run, codes):
    if run.conditions is not None and (broken := run.conditions.contains(codes)).any():
        raise RuntimeError(
            f"{int(broken.sum())} of {len(codes)} records made are impossible; please report "
            "this defect"
        )
    return Microdata(run.table.schema, codes).to_frame()


@partial(jax.jit, static_argnames=("num_records", "num_levels"))
def _simulate(model, key, draw, feasible, num_records, num_levels):
    return model.simulate_records(key, draw, num_records, num_levels, feasible)


@partial(jax.jit, static_argnames="lanes")
def _simulate_households(model, key, draw, data, left, lanes):
    return model.simulate_households(key, draw, data, left, lanes)


@jax.jit
def _complete(model, key, draw, data):
    return model.complete_records(key, draw, data)


@partial(jax.jit, static_argnames="num_levels")
def _levels(model, draws, feasible, num_levels):
    return jax.lax.map(lambda draw: model.level_probabilities(draw, num_levels, feasible), draws)
