"""Soak: chains, risk, synthesis and evaluation again and again, while a process is watched.

    python experiments/quality/load/soak.py --piece checkpoints --minutes 8
    python experiments/quality/load/soak.py --piece "same shapes" --minutes 8
    python experiments/quality/load/soak.py --piece "new shapes" --minutes 8
    python experiments/quality/load/soak.py --piece sweeps --minutes 60

`--share-of-maps 0.2` has programs forgotten at 13,000 maps, not at 33,000, so that minutes show it.
`--share-of-maps 1` never does: what was before.

Each piece is a process of its own. It appends resident memory, memory maps, open files, threads and
temporary files, as they are after each round, to soak.csv; soak.md is made of all pieces there.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bnp_models as bnp
from bnp_models.inference import compilation

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "accuracy" / "known_truth")]
from results import markdown  # noqa: E402

ROWS = HERE / "soak.csv"
PIECES = ("checkpoints", "same shapes", "new shapes", "sweeps")
CHECKPOINTS_A_DAY = 24 * 60 * 60 // 10
"""Checkpoints of 24 hours: one every ten seconds."""
SWEEPS_A_DAY = 24 * 60 * 6500
"""Sweeps of 24 hours: those of the README's sample, whose 6,500 sweeps take a minute."""
WATCHED = ("rss_mib", "maps", "handles", "threads", "temporary_mib")
CHUNKS_OF_ROUND = 240
SWEEPS_OF_CHUNK = 4


def watched(folder: Path) -> dict[str, float]:
    """What a process holds of the machine."""
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    with open("/proc/self/maps") as maps:
        number = sum(1 for _ in maps)
    return {
        "rss_mib": int(status["VmRSS"].split()[0]) / 1024,
        "maps": number,
        "handles": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "temporary_mib": sum(files) / 2**20,
    }


def chains(table, folder, chunks, key=0, thin=4, **options):
    """A run of so many stretches of four sweeps, with a checkpoint after each."""
    return bnp.sample(
        bnp.NPLCM(components=8), table, key=jax.random.key(key), num_chains=2,
        num_warmup=4 * chunks // 4, num_samples=3 * chunks // 4, thin=thin,
        chunk_sweeps=SWEEPS_OF_CHUNK,
        checkpoint_seconds=0, checkpoint=folder / "chains", **options,
    )  # fmt: skip


def checkpoints(folder: Path):
    """Chains alone, with a checkpoint after each stretch; six runs are a day's checkpoints."""
    table = sample_of(200, 4, 0)
    for number in range(10**9):
        chains(table, folder, 6 * CHUNKS_OF_ROUND, key=number)
        yield 6 * CHUNKS_OF_ROUND, 6 * CHUNKS_OF_ROUND * SWEEPS_OF_CHUNK


def sweeps(folder: Path):
    """One run of as many sweeps as a day has, on a tiny sample; a checkpoint every ten seconds."""
    table, part = sample_of(8, 2, 0), 100
    settings = {"num_chains": 1, "num_warmup": 0, "num_samples": part, "thin": 1000}
    run = bnp.sample(bnp.NPLCM(components=2), table, key=jax.random.key(0), **settings)
    began = time.monotonic()
    for _ in range(SWEEPS_A_DAY // (1000 * part)):
        run = bnp.extend(run, part, checkpoint=folder / "chains")
        yield (time.monotonic() - began) // 10, 1000 * part
        began = time.monotonic()


def sample_of(records: int, variables: int, number: int) -> bnp.Microdata:
    """Census records, of other variables with each number."""
    frame = bnp.datasets.census_income().sample(records, seed=number)
    names = np.random.default_rng(number).permutation(list(frame.columns))[:variables]
    return bnp.Microdata.from_frame(frame[list(names)])


def everything(table, folder, number):
    """What commands do with a sample, from chains to pages."""
    run = chains(table, folder, CHUNKS_OF_ROUND, key=number)
    risk = bnp.population_risk(run, population_size=20 * table.n)
    bnp.report.write_report(folder / "risk.html", risk)
    bnp.io.write_records(risk, folder / "records.csv")
    bnp.io.write_netcdf(bnp.to_inference_data(run, risk), folder / "posterior.nc")
    files = bnp.synthesize(run, 2)
    found = bnp.evaluate(table, files, key=jax.random.key(number))
    bnp.report.write_evaluation_report(folder / "evaluation.html", found, ["a.csv", "b.csv"])
    bnp.attack_risk(run, table, files, key=jax.random.key(number), num_bootstrap=50)
    return CHUNKS_OF_ROUND, CHUNKS_OF_ROUND * SWEEPS_OF_CHUNK


def same_shapes(folder: Path):
    """The same sample each time, so that nothing is compiled after the first."""
    table = sample_of(200, 4, 0)
    for number in range(10**9):
        yield everything(table, folder, number)


def new_shapes(folder: Path):
    """A sample of other variables and another size each time, so that programs are compiled."""
    for number in range(10**9):
        records, variables = 100 + 40 * (number % 50), 3 + number % 6
        yield everything(sample_of(records, variables, number), folder, number)


def soak(piece: str, minutes: float, share: float) -> None:
    """Run a piece, and append what is watched."""
    rounds = dict(zip(PIECES, (checkpoints, same_shapes, new_shapes, sweeps), strict=True))[piece]
    compilation.SHARE_OF_MAPS = share
    began, chunks, all_sweeps = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        for number, (of_round, swept) in enumerate(rounds(Path(folder))):
            chunks, all_sweeps = chunks + of_round, all_sweeps + swept
            row = {"piece": piece, "share_of_maps": share, "round": number}
            row |= {"seconds": time.monotonic() - began, "chunks": chunks}
            row |= {"sweeps": all_sweeps} | watched(Path(folder))
            pd.DataFrame([row]).to_csv(
                ROWS, mode="a", header=not ROWS.exists(), index=False, float_format="%.2f"
            )
            if time.monotonic() - began > 60 * minutes:
                return


def table_of(rows: pd.DataFrame) -> pd.DataFrame:
    """A column for each piece: how much was done, and slopes after a fifth of its rounds."""
    found = []
    for (piece, share), part in rows.groupby(["piece", "share_of_maps"], sort=False):
        late = part.iloc[len(part) // 5 :]
        row = {
            "piece": piece, "share of maps": share, "minutes": part["seconds"].max() / 60,
            "rounds": len(part), "checkpoints": int(part["chunks"].max()),
            "days of checkpoints": part["chunks"].max() / CHECKPOINTS_A_DAY,
            "sweeps": int(part["sweeps"].max()),
            "days of sweeps": part["sweeps"].max() / SWEEPS_A_DAY,
        }  # fmt: skip
        for name in WATCHED:
            row[f"{name}, last"] = float(part[name].iloc[-1])
            row[f"most {name}"] = float(part[name].max())
            slope = np.polyfit(late["chunks"], late[name], 1)[0] if len(late) > 2 else np.nan
            row[f"{name} by 1,000 checkpoints"] = round(1000 * slope, 2)
        found.append(row)
    table = pd.DataFrame(found).set_index(["piece", "share of maps"])
    return table.T.reset_index(names="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--piece", choices=PIECES)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--share-of-maps", type=float, default=compilation.SHARE_OF_MAPS)
    args = parser.parse_args()
    if args.piece:
        soak(args.piece, args.minutes, args.share_of_maps)
    table = table_of(pd.read_csv(ROWS))
    table.columns = [" ".join(map(str, name)) if name[0] else "" for name in table.columns]
    (HERE / "soak.md").write_text(markdown(table, index=False) + "\n")


if __name__ == "__main__":
    main()
