"""The table of results.csv: seconds until each quantity can be trusted, and where they go."""

import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "accuracy" / "known_truth"))
from results import markdown  # noqa: E402

PARTS = ["preparing", "compiling", "warmup", "drawing", "evaluating"]


def main() -> None:
    """Write table.md: medians over the samples; "-" where a quantity cannot be trusted."""
    results = pd.read_csv(HERE / "results.csv")
    shares = results[PARTS].div(results[PARTS].sum(axis=1), axis=0)
    rows = results.assign(**shares, seconds=results[PARTS].sum(axis=1), samples=1)
    judged = [
        name for name in results if name.startswith(("until_", "loosely_", "rhat_", "ess_second_"))
    ]
    table = rows.groupby(["model", "n", "version"]).agg(
        {"samples": "size"} | dict.fromkeys(["seconds", *PARTS, "sweeps", *judged], "median")
    )
    (HERE / "table.md").write_text(markdown(table) + "\n")


if __name__ == "__main__":
    main()
