"""Models and samples whose sweeps are timed, or counted, in this folder."""

import fcntl
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import bnp_models as bnp
from bnp_models.rules.census import census_relationships

EXPERIMENTS = Path(__file__).parents[2]
sys.path.insert(0, str(EXPERIMENTS / "speed" / "benchmark"))
from run import PLAIN_HDP  # noqa: E402

CONDITIONS = EXPERIMENTS / "synthesis" / "repeated_sampling" / "conditions.csv"
MODELS = {
    "hdp plain": bnp.HDPMixedMembership(**PLAIN_HDP),
    "hdp": bnp.HDPMixedMembership(),
    "hdp, 55 conditions, plain": bnp.HDPMixedMembership(**PLAIN_HDP),
    "hdp, 55 conditions": bnp.HDPMixedMembership(),
    "nplcm": bnp.NPLCM(),
    "tnplcm, 55 conditions": bnp.TNPLCM(),
    "ndpmpm, rules": bnp.NDPMPM(member_classes="nested"),
    "ndpmpm": bnp.NDPMPM(member_classes="nested"),
    "hdp, ordered": bnp.HDPMixedMembership(ordered="age"),
    "nplcm, ordered": bnp.NPLCM(ordered="age"),
    "tnplcm, 55 conditions, ordered": bnp.TNPLCM(ordered="age"),
    "ndpmpm, rules, ordered": bnp.NDPMPM(ordered="age", member_classes="nested"),
}
# Records; of households, households.
RECORDS, HOUSEHOLDS = 10_000, 1000


def make_case(case):
    """Model, records or households, and their conditions or rules."""
    if case.startswith("ndpmpm"):
        table = bnp.datasets.southeast_michigan_households().sample(HOUSEHOLDS, 0).households()
        rules = census_relationships(table)
        return MODELS[case], table.select(rules.check(table)), rules if "rules" in case else None
    table = bnp.Microdata.from_frame(bnp.datasets.census_income().sample(RECORDS, 0))
    conditions = bnp.read_conditions(CONDITIONS, table.schema) if "conditions" in case else None
    return MODELS[case], table, conditions


@contextmanager
def alone():
    """What several processes have compiled side by side, they time one after the other."""
    with open(Path(tempfile.gettempdir()) / "bnp-models-speed.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
