"""Traces of the chains of `bnp-models synthesize`, a column for each folder of results.

    python experiments/speed/time_to_trust/page_traces.py michigan bay simulated
    python experiments/speed/time_to_trust/page_traces.py FOLDER.. --to eight_chains

The folders are those of --out, and give the columns their titles. Writes the figure
traces/default_command.png, or that of another name, and prints R-hat and effective draws.
"""

import argparse
from pathlib import Path

import arviz as az
from matplotlib.figure import Figure

HERE = Path(__file__).parent
LABELS = {
    "total_log_likelihood": "log-likelihood", "components": "household classes", "alpha": "alpha",
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--to", default="default_command", help="name of the figure")
    args = parser.parse_args()
    folders = args.folders
    figure = Figure(figsize=(4 * len(folders), 6), layout="constrained")
    axes = figure.subplots(len(LABELS), len(folders), sharex="col", squeeze=False)
    for column, folder in zip(axes.T, folders, strict=True):
        posterior = az.from_netcdf(folder / "posterior.nc").posterior
        for axis, name in zip(column, LABELS, strict=True):
            axis.plot(posterior[name].to_numpy().T, lw=0.4)
            rhat, ess = (float(f(posterior[name])[name]) for f in (az.rhat, az.ess))
            print(f"{folder.name}, {LABELS[name]}: R-hat {rhat:.3f}, {ess:.0f} effective draws")
        column[0].set_title(folder.name, fontsize=9)
        column[-1].set_xlabel("kept draws after the first quarter")
    for axis, label in zip(axes[:, 0], LABELS.values(), strict=True):
        axis.set_ylabel(label, fontsize=8)
    figure.savefig(HERE / "traces" / f"{args.to}.png", dpi=70)


if __name__ == "__main__":
    main()
