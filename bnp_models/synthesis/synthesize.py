"""Synthetic and completed data sets from the draws of a run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, overload

import jax
import numpy as np
import pandas as pd

from bnp_models.data.arguments import check_kind
from bnp_models.data.contingency import ContingencyTable, Tabulator, labels_of
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata
from bnp_models.data.schema import Label
from bnp_models.data.weight_classes import cell_shares, require_unweighted
from bnp_models.inference.compilation import check_kept
from bnp_models.inference.run import RecordsRun, Run, is_of_households, is_of_records, spaced_draws
from bnp_models.inference.simulated_households import simulate_households
from bnp_models.inference.weighting import population_law
from bnp_models.kernels.variates.rng import Keys
from bnp_models.models.model import Completes, PredictsCells, Table
from bnp_models.models.options import check_choice, typed_key
from bnp_models.rules.rules import Rules
from bnp_models.synthesis.calibration import balanced_sample, calibrate, shuffled_records
from bnp_models.synthesis.given import check_given, sets_given, values_by_variable
from bnp_models.synthesis.households import (
    IMPUTATION,
    SYNTHESIS,
    impute_households,
    synthesize_households,
)
from bnp_models.synthesis.partial import check_keep, complete_sample, draw_others
from bnp_models.synthesis.rejection import with_conditions
from bnp_models.zeros.structural_zeros import StructuralZeros

# Largest number of records that are simulated at once, and of elements of arrays (boxes, records).
_RECORDS_AT_ONCE, _ENTRIES_AT_ONCE = 2**15, 2**25

# Number of records from which the memory for the labels of a file is estimated.
_OF_FILE = 1000

METHODS = ("predictive", "balanced", "calibrated")
"""Methods of making records from the draws."""

# Pool from which balanced files are drawn: records for each record of a file, smallest and largest
# number of records, and number of draws from which they are simulated.
_POOLED, _LEAST_POOLED, _MOST_POOLED, _POOLED_DRAWS = 20, 100_000, 20_000_000, 50


@overload
def synthesize(
    run: Run[ContingencyTable, Any],
    num_datasets: int = 5,
    num_rows: int | None = None,
    *,
    key: jax.Array | None = None,
    method: str = "predictive",
    keep: Sequence[str] = (),
    given: Mapping[str, Label | Sequence[Label]] | None = None,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
) -> list[ContingencyTable]: ...


@overload
def synthesize(
    run: Run,
    num_datasets: int = 5,
    num_rows: int | None = None,
    *,
    key: jax.Array | None = None,
    method: str = "predictive",
    keep: Sequence[str] = (),
    given: Mapping[str, Label | Sequence[Label]] | None = None,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
) -> list[pd.DataFrame]: ...


def synthesize(
    run: Run,
    num_datasets: int = 5,
    num_rows: int | None = None,
    *,
    key: jax.Array | None = None,
    method: str = "predictive",
    keep: Sequence[str] = (),
    given: Mapping[str, Label | Sequence[Label]] | None = None,
    conditions: StructuralZeros | Rules | pd.DataFrame | None = None,
) -> list[pd.DataFrame] | list[ContingencyTable]:
    """Draw synthetic data sets. They are completely synthetic, unless columns are kept.

    Parameters
    ----------
    run
        Chains that kept the model's ``parameters``. The sample may have missing values; synthetic
        data have none. If it has design weights (`weighted_microdata`), each file represents a
        simple random sample of the population and has no weights.
    num_datasets
        M files.
    num_rows
        Number of records of each file; by default as many as the sample has. For households it
        cannot be chosen: there are as many households of each size as in the sample.
    key
        By default one that `run` set aside.
    method
        "predictive": each file is drawn from the posterior predictive distribution, with its own
        draw of the parameters; these draws are far apart in the chains. "balanced": the files
        follow the mean of many draws, and groups of similar cells have nearly the expected number
        of records (`bnp_models.synthesis.calibration`). "calibrated": like "balanced", but the
        weights of the cells are first calibrated to the one- and two-way margins of the sample (the
        weighted margins, if it has weights). In this order, files are closer to the sample, and
        more of its unique combinations occur in them. Households can only be made by "predictive".
        The command line makes calibrated files unless --for inference asks for predictive ones.
    keep
        Columns that are copied in every record, while the others are drawn given them (partially
        synthetic data). Only latent class models of single records can do this. The order of the
        records is unchanged.
    given
        Values that the records must have, by variable: one value, or several, of which each record
        has one. All other values are drawn from their exact distribution given these, also under
        structural zeros. Latent class models draw them directly; mixed membership models draw
        records until enough have the given values. Not for households, `keep` or other methods.
    conditions
        Structural zeros, or rules of households, that the files keep though the chains had none:
        impossible records or households are drawn again (Hu, Reiter & Wang 2018, section 4.2,
        "rej samp"). The files have the distribution of the chains restricted to what is possible,
        which is not the distribution of a model that is fitted under the conditions: usually give
        the conditions to `sample`. Households are drawn again given their size. Not for `keep` or
        other methods.

    Returns
    -------
    frames
        Records with the columns, labels and types of the sample. Households are sorted by size and
        numbered anew. A run on a `ContingencyTable` gives contingency tables.

    Raises
    ------
    ValueError
        If there are fewer draws than data sets, `run` kept no parameters, the model does not
        simulate records, `method` is not for this sample, records cannot have the `given` values,
        or the chains had conditions and more are given.
    RuntimeError
        If none of very many simulated households of a size is possible, or a record of a file is
        impossible, which would be a defect.

    Notes
    -----
    Combine the estimates from the M files with `combine_partially_synthetic`, whichever method made
    the files: the variance within a file estimates the variance of the sample's own estimate.

    Examples
    --------
    >>> files = bnp.synthesize(run, 2)
    >>> files[0].shape
    (62, 3)
    >>> bnp.synthesize(run, 1, 30, given={"sex": "Male"})[0]["sex"].unique().tolist()
    ['Male']
    """
    check_kind(Run, "synthesize(run, num_datasets)", run=run)
    if key is not None:
        key = typed_key(key)
    check_method(method, run.table)
    observed = cell_shares(run.table)
    if is_of_households(run):
        # Files have as many households of each size as the sample, and not as the population.
        require_unweighted(run.table, "the synthesis of households")
    run = population_law(run)
    if conditions is not None:
        run = with_conditions(run, conditions, method, keep, num_rows)
    if is_of_households(run):
        if given:
            raise ValueError("given: households are not drawn given values of their persons")
        return synthesize_households(run, num_datasets, num_rows, key)
    assert is_of_records(run)
    if not isinstance(run.model, PredictsCells):
        raise ValueError(f"the {run.model.name} model does not simulate records")
    wanted = values_by_variable(given)
    if wanted:
        if keep:
            raise ValueError("given cannot be combined with keep; leave one of them out")
        rows = run.table.n if num_rows is None else num_rows
        check_given(wanted, run.model, run.table, run.conditions, method, rows)
    if keep:
        check_keep(keep, run.model, run.table, method)
        if num_rows not in (None, run.table.n):
            raise ValueError(
                f"num_rows: with keep, every file has the {run.table.n} records of the sample; "
                "leave it out"
            )
        key = jax.random.fold_in(run.key if key is None else key, SYNTHESIS)
        return [_checked_frame(run, made) for made in draw_others(run, keep, num_datasets, key)]
    num_rows = run.table.n if num_rows is None else num_rows
    if num_rows < 1:
        raise ValueError(f"num_rows must be at least 1, not {num_rows}")
    check_files(run.table, num_datasets, num_rows)
    key = jax.random.fold_in(run.key if key is None else key, SYNTHESIS)
    if method != "predictive":
        return _balanced(run, num_datasets, num_rows, key, method == "calibrated", observed)
    simulated = _simulate_records(run, num_datasets, num_rows, key, sets_given(run, wanted))
    if isinstance(run.table, ContingencyTable):
        return [_checked_table(run, _tabulated(run, batches)) for batches in simulated]
    return [_checked_frame(run, np.concatenate(list(batches))) for batches in simulated]


def usual_method(table: Table, *, keep: bool = False, given: bool = False) -> str:
    """Method of the files nearest to a sample that can be made, the default of the command line.

    Parameters
    ----------
    table
        The sample.
    keep, given
        Whether columns are kept, or all records have given values.

    Returns
    -------
    method
        "calibrated"; "balanced" if values are missing, so that the sample's margins are not known;
        "predictive" for households, and if columns are kept or values given, for which there is no
        other method.
    """
    if isinstance(table, Households) or keep or given:
        return "predictive"
    return "balanced" if table.has_missing else "calibrated"


def check_method(method: str, table: Table) -> None:
    """Raise ValueError unless data sets of this sample can be made by `method`."""
    check_choice(METHODS, method=method)
    if method != "predictive" and isinstance(table, Households):
        raise ValueError(f'households are made by method "predictive" only, not "{method}"')
    if method == "calibrated" and table.has_missing:
        raise ValueError(
            "margins of a sample with missing values are not known, so that files cannot be "
            'calibrated to them; use method "balanced", or complete the sample first'
        )


def check_files(table: Table, num_datasets: int, num_rows: int) -> None:
    """Raise `NotEnoughMemory` if data sets like this sample do not fit into memory together."""
    if not isinstance(table, Microdata):
        return
    some = labels_of(table.schema, table.codes[:_OF_FILE])
    each = some.memory_usage(index=False).sum() / len(some)
    needed = num_datasets * num_rows * each
    check_kept("the files", needed, "make fewer of them (--datasets), or shorter ones (--rows)")


def _balanced(
    run: RecordsRun,
    num_datasets: int,
    num_rows: int,
    key: jax.Array,
    calibrated: bool,
    observed: np.ndarray | None,
) -> list[pd.DataFrame] | list[ContingencyTable]:
    """Balanced samples of one pool of records simulated from many draws.

    They are calibrated to `observed`, the shares of the sample's cells; by default the shares of
    its records.
    """
    key_pool, key_files = Keys(key)
    num_draws = min(_POOLED_DRAWS, run.settings.num_chains * run.settings.num_arrays)
    pooled = max(_POOLED * num_rows, _LEAST_POOLED)
    pooled = min(pooled, max(_MOST_POOLED, num_rows))
    each = -(-pooled // num_draws)
    simulated = _simulate_records(run, num_draws, each, key_pool, run.feasible_sets)
    pool = _tabulated(run, (codes for batches in simulated for codes in batches))
    weight = pool.counts / pool.n
    if calibrated:
        weight = calibrate(pool.codes, weight, run.table.tabulated, observed=observed)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key_files)))
    files = []
    for _ in range(num_datasets):
        counts = balanced_sample(rng, pool.codes, weight, num_rows)
        if isinstance(run.table, ContingencyTable):
            some = counts > 0
            made = ContingencyTable(
                run.table.schema, pool.codes[some], counts[some],
                np.cumsum(counts[some]) - counts[some],
            )  # fmt: skip
            files.append(_checked_table(run, made))
        else:
            files.append(_checked_frame(run, shuffled_records(rng, pool.codes, counts)))
    return files


def simulate_samples(
    run: Run, number: int, key: jax.Array, num_rows: int | None = None
) -> Iterator[ContingencyTable]:
    """Simulate samples like that of a run, one for each of `number` well-separated draws.

    Yields
    ------
    table
        Cells of a simulated sample with `num_rows` records, by default as many as the sample has,
        or with households of the same sizes.
    """
    if is_of_households(run):
        return (made.persons.tabulated for made in simulate_households(run, number, key))
    assert is_of_records(run)
    if not isinstance(run.model, PredictsCells):
        raise ValueError(f"the {run.model.name} model does not simulate records")
    num_rows = run.table.n if num_rows is None else num_rows
    simulated = _simulate_records(run, number, num_rows, key, run.feasible_sets)
    return (_tabulated(run, batches) for batches in simulated)


def num_records(made: pd.DataFrame | ContingencyTable) -> int:
    """Number of records of a data set that `synthesize` or `impute` made."""
    return made.n if isinstance(made, ContingencyTable) else len(made)


def _tabulated(run: RecordsRun, batches: Iterable[np.ndarray]) -> ContingencyTable:
    """Contingency table of records that come in batches."""
    tabulator, schema = Tabulator(), run.table.schema
    for codes in batches:
        tabulator.add(codes, schema.num_levels)
    return tabulator.finish(schema)


def _simulate_records(
    run: RecordsRun, number: int, num_rows: int, key: jax.Array, feasible: np.ndarray | None
) -> Iterator[Iterator[np.ndarray]]:
    """Level codes (b, J) of `num_rows` records in batches, for each of some draws.

    They are in the boxes `feasible` (B, R), or in any cell.
    """
    num_boxes = 1 if feasible is None else len(feasible)
    batch = _ENTRIES_AT_ONCE // (num_boxes + run.capacity)
    batch = min(num_rows, max(256, min(batch, _RECORDS_AT_ONCE)))
    simulate = partial(_simulate, run.model, num_records=batch, num_levels=run.num_levels)

    def batches_of(key, draw):
        for b, start in enumerate(range(0, num_rows, batch)):
            codes = np.asarray(simulate(jax.random.fold_in(key, b), draw, feasible)).T
            codes = codes[: num_rows - start]
            yield codes if run.coding is None else run.coding.expand(codes)

    for m, draw in enumerate(spaced_draws(run, number)):
        yield batches_of(jax.random.fold_in(key, m), draw)


def impute(run: Run, num_datasets: int = 5, *, key: jax.Array | None = None) -> list[pd.DataFrame]:
    """Complete the missing values of the sample, several times.

    Parameters
    ----------
    run
        Chains of a model that accepts missing values; they must have kept its ``parameters``.
    num_datasets
        M, the number of completed files. Each uses its own draw of the parameters; these draws are
        far apart in the chains.
    key
        By default a key that `run` keeps for this purpose. It is not used for households, whose
        missing values were kept with the draws.

    Returns
    -------
    frames
        The sample with its missing values filled in. All missing values of a record are drawn
        together, observed values are unchanged, and every record is feasible.

    Raises
    ------
    ValueError
        If no value is missing, the model does not accept missing values, there are fewer draws than
        data sets, or `run` kept no parameters.
    RuntimeError
        If a record is impossible or an observed value changed, which would be a defect.

    Notes
    -----
    Estimates from the M files are combined by `combine_imputed`.

    Examples
    --------
    >>> gaps = frame.astype(object).mask(np.random.default_rng(0).random(frame.shape) < 0.1)
    >>> incomplete = bnp.Microdata.from_frame(gaps, levels=table.schema)
    >>> chains = bnp.sample(model, incomplete, key=jax.random.key(0), **short)
    >>> completed = bnp.impute(chains, 2)
    >>> bool(completed[0].isna().any(axis=None))
    False
    """
    check_kind(Run, "impute(run, num_datasets)", run=run)
    if key is not None:
        key = typed_key(key)
    table, model = run.table, run.model
    require_unweighted(table, "imputation")
    if not table.has_missing:
        raise ValueError("no value is missing: there is nothing to impute")
    if is_of_households(run) and model.takes_missing:
        return impute_households(run, num_datasets)
    under = run.conditions is not None
    takes = model.missing_under_conditions if under else model.takes_missing
    if not isinstance(model, Completes) or not takes:
        zeros = " under structural zeros" * under
        raise ValueError(f"the {model.name} model does not draw missing values{zeros}")
    assert not isinstance(table, Households)
    key = jax.random.fold_in(run.key if key is None else key, IMPUTATION)
    data = model.prepare(table, run.conditions)
    observed = table.codes >= 0
    frames = []
    for m, draw in enumerate(spaced_draws(run, num_datasets)):
        codes = complete_sample(model, jax.random.fold_in(key, m), draw, data)
        if (codes != table.codes)[observed].any():
            raise RuntimeError("an observed value was changed; please report this defect")
        frames.append(_checked_frame(run, codes))
    return frames


def _checked_frame(run, codes):
    """Make a frame of records, after checking that all are possible."""
    _require_possible(run, codes)
    return labels_of(run.table.schema, codes)


def _checked_table(run, table):
    """Return a contingency table, after checking that all its records are possible."""
    _require_possible(run, table.codes)
    return table


def _require_possible(run, codes):
    """Raise RuntimeError if a record that was made is impossible."""
    if run.conditions is not None and (impossible := run.conditions.contains(codes)).any():
        raise RuntimeError(
            f"{int(impossible.sum())} of the {len(codes)} new records are impossible; please "
            "report this defect"
        )


@partial(jax.jit, static_argnames=("num_records", "num_levels"))
def _simulate(model, key, draw, feasible, num_records, num_levels):
    """(J, n) level codes of new records."""
    with jax.named_scope("simulate_records"):
        return model.simulate_records(key, draw, num_records, num_levels, feasible)
