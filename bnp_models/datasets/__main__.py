"""``python -m bnp_models.datasets DIR``: a census sample with known risk, beside an estimate.

Without ``--compare`` it writes sample.csv, levels.csv and truth.json into DIR; with it, it prints
the estimate of DIR/risk.json beside the truth.
"""

import argparse
import json
from pathlib import Path

from bnp_models.data.writing import write_json
from bnp_models.datasets import census_income


def write(directory: Path, rows: int, seed: int, adults: bool) -> None:
    """Write a simple random sample of the census population, its code book and its true risk."""
    population = census_income(adults=adults)
    truth = population.write_sample(directory, rows, seed)
    document = {
        "population_size": len(population),
        "rows": rows,
        "seed": seed,
        "sample_uniques": truth.sample_uniques,
        "tau1": truth.tau1,
        "tau2": truth.tau2,
    }
    write_json(document, directory / "truth.json")


def comparison(directory: Path) -> str:
    """Return the estimates of risk.json beside truth.json, in columns."""
    truth = json.loads((directory / "truth.json").read_text())
    risk = json.loads((directory / "risk.json").read_text())
    lines = [
        f"{truth['sample_uniques']} uniques among {risk['n']:,} records of a population of "
        f"{truth['population_size']:,}",
        f"{'':42}{'truth':>8}{'mean':>8}{'95% interval':>16}",
    ]
    for name, what in (
        ("tau1", "unique in the population (tau1)"),
        ("tau2", "expected correct matches (tau2)"),
    ):
        figure = risk[name]
        interval = f"{figure['q025']:.1f} to {figure['q975']:.1f}"
        lines.append(f"{what:42}{truth[name]:8.1f}{figure['mean']:8.1f}{interval:>16}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Write a sample, or compare an estimate with the truth."""
    parser = argparse.ArgumentParser(
        prog="python -m bnp_models.datasets", description=__doc__.split("\n")[0]
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="folder of the sample")
    parser.add_argument(
        "--rows", metavar="n", type=int, default=1000, help="number of records (default: 1000)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the random sample (default: 0)"
    )
    parser.add_argument("--adults", action="store_true", help="draw only persons of 15 and over")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="print the estimates in risk.json beside the true figures",
    )
    options = parser.parse_args(argv)
    if options.compare:
        print(comparison(options.directory))
    else:
        write(options.directory, options.rows, options.seed, options.adults)


if __name__ == "__main__":
    main()
