"""From the command to its page, on a sample of each population.

    python experiments/speed/time_to_trust/pages.py FOLDER --nist FILE [--n 1000] [--only NAME ...]

Runs `bnp-models risk` with its default settings, one process after the other, and adds a row to
pages.csv: seconds in all and of compilation, warm-up and draws, sweeps of a chain, tau_1 beside its
truth, and the figures by which the chains are judged. Programs that an earlier run compiled for
a sample of the same levels and size, nearly, are found in the user's cache.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / "accuracy" / name) for name in ("known_truth", "risk_peers")]
from results import Results  # noqa: E402
from samples import draw_sample, populations, truth  # noqa: E402


def page(frame, n, seed, options):
    """A row: what the command took, and what it found."""
    sample = draw_sample(frame, n, seed)
    with tempfile.TemporaryDirectory() as folder:
        sample.to_csv(Path(folder) / "sample.csv", index=False)
        command = [Path(sys.executable).with_name("bnp-models"), "risk", "sample.csv", "--out", "o",
                   "--population-size", str(len(frame)), "--seed", str(seed), *options]  # fmt: skip
        start = time.time()
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        seconds = time.time() - start
        risk = json.loads((Path(folder) / "o" / "risk.json").read_text())
    tau1, stopping = risk["tau1"], risk["stopping"]
    figures = {
        f"{name} {kind}": round(risk["diagnostics"][name][kind], 3)
        for name in ("tau1", "log_likelihood") for kind in ("rhat", "ess_bulk")
    }  # fmt: skip
    return {
        "n": n, "seed": seed, "seconds": round(seconds),
        **{name: round(value) for name, value in risk["seconds"].items()},
        "draws_of_a_chain": stopping["draws"], "reached": stopping["reached"],
        "truth": truth(frame, sample).tau1,
        "tau1": round(tau1["mean"], 1), "q025": tau1["q025"], "q975": tau1["q975"],
        "usable": risk["usable"]["tau1"], "warnings": len(risk["warnings"]), **figures,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nist", type=Path)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--only", nargs="*")
    args, options = parser.parse_known_args()
    results = Results(HERE / "pages.csv", ("population", "n", "seed"))
    for name, frame in populations(args.folder, args.nist):
        if args.only and name not in args.only:
            continue
        row = {"population": name} | page(frame.astype(str), args.n, args.seed, options)
        results.append(row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
