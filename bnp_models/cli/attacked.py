"""Attack on the files of ``bnp-models synthesize``, which are made again without some records."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd

from bnp_models.cli.commands import Synthesize
from bnp_models.cli.folder import say, shows_progress
from bnp_models.cli.options import UsageError
from bnp_models.data.contingency import ContingencyTable
from bnp_models.data.households import Households
from bnp_models.data.microdata import Microdata, Records
from bnp_models.data.weight_classes import WeightedMicrodata, records_of
from bnp_models.evaluation.attack.gains import LEAST, LeftOutRisk
from bnp_models.evaluation.attack.left_out import SHARE, choose_left_out, left_out_risk
from bnp_models.inference.run import AllDraws, Run
from bnp_models.inference.sampling import sample
from bnp_models.inference.weighting import population_law
from bnp_models.kernels.numerics.counting import first_rows
from bnp_models.kernels.variates.rng import Keys
from bnp_models.synthesis.given import admitted_levels
from bnp_models.synthesis.synthesize import synthesize

FEWEST, MOST = 500, 5000
"""Smallest and largest number of records of samples whose files are attacked by default."""

_ATTACK = 0x41545441

# Draws of each chain that is run again, and sweeps for each; files need no more.
_DRAWS, _THIN = 100, 5


def check_attack(command: Synthesize, table: Records | Households) -> None:
    """Refuse --attack yes for files that cannot be made again without some records."""
    if command.made.attack != "yes":
        return
    if isinstance(table, Households):
        raise UsageError(
            "--attack yes: is only for single records; leave it out, and attack the households of "
            "the files by bnp-models evaluate --posterior"
        )
    if isinstance(table, ContingencyTable):
        raise UsageError(
            "--attack yes: needs single records, but the sample is a folder, of which only cell "
            "counts are kept; leave it out"
        )
    least = round(2 * LEAST / SHARE)
    if (number := int(records_of(table).complete.sum())) < least:
        raise UsageError(
            f"--attack yes: needs at least {least} complete records, and there are {number}; leave "
            "it out"
        )


def is_attacked(command: Synthesize, table: Records | Households) -> bool:
    """Whether the files of this sample are attacked."""
    if command.made.attack == "auto":
        return isinstance(table, Microdata) and FEWEST <= table.complete.sum() <= table.n <= MOST
    return command.made.attack == "yes"


def attack_files(
    command: Synthesize, run: Run, frames: Sequence[pd.DataFrame], given: dict[str, list[str]]
) -> LeftOutRisk:
    """Make files again without a part of the sample, and attack persons with both.

    Parameters
    ----------
    command
        Options of the files and the chains.
    run
        Chains from which the files were made.
    frames
        The files.
    given
        Values that all records of the files have.
    """
    made, table = command.made, run.table
    assert isinstance(table, Microdata)
    key_left_out, key_chains, key_files, key = Keys(jax.random.fold_in(run.key, _ATTACK), 4)
    left_out = choose_left_out(table, key_left_out)
    say(command.output, f"attack: chains without {left_out.sum():,} records of the sample")
    again = _run_without(command, run, _without(table, left_out), key_chains)
    rows = None if made.keep or made.rows is None else round(made.rows * (~left_out).mean())
    without = synthesize(
        again, made.datasets, rows, key=key_files, method=made.chosen_method, keep=made.keep,
        given=given,
    )  # fmt: skip
    records = records_of(table)
    admitted = admitted_levels(given, records.schema)
    levels = records.codes + first_rows(records.schema.num_levels)
    return left_out_risk(
        table, left_out, without, released=frames, conditions=population_law(run).conditions,
        persons=records.complete & admitted[levels].all(axis=1), key=key,
    )  # fmt: skip


def _without(table: Microdata, left_out: np.ndarray) -> Microdata:
    """The records that are not left out, with their weights."""
    codes = table.codes[~left_out]
    if isinstance(table, WeightedMicrodata):
        return WeightedMicrodata(table.schema, codes, table.weights[~left_out])
    return Microdata(table.schema, codes)


def _run_without(command: Synthesize, run: Run, some: Microdata, key: jax.Array) -> Run:
    """Chains on some of the records, as long as files need."""
    settings, made, minutes = run.settings, command.made, command.chains.max_minutes
    number = max(min(settings.num_samples, _DRAWS), -(-made.datasets // settings.num_chains))
    stop: dict[str, Any] = {}
    if minutes is not None:
        stop = {"until": AllDraws(number), "max_minutes": minutes}
    return sample(
        run.model, some, key=key, conditions=run.conditions, num_chains=settings.num_chains,
        num_warmup=settings.num_warmup, num_samples=number, thin=_THIN,
        progress=shows_progress(command.output), **stop,
    )  # fmt: skip
