"""Make the pictures of README.md, and put the demo's output into it.

``python experiments/quality/readme_figures/make.py``: four minutes. Screenshots need Debian's
chromium; where there is none, the old ones stay. With ``--only evaluation`` the demo is left alone.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib
import numpy as np

import bnp_models as bnp
from bnp_models.cli.main import main as command
from bnp_models.datasets import census_income
from bnp_models.datasets.__main__ import main as demo_data
from bnp_models.inference.arviz import load_arviz

HERE = Path(__file__).resolve().parent
README = HERE.parents[2] / "README.md"
ROWS, SEED = 1000, 0
DEMO = ["--population-size", "228421", "--warmup", "500", "--draws", "2000",
        "--thin", "3", "--max-tau1", "30", "--quiet"]  # fmt: skip
CHROMIUM = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
]  # fmt: skip


def demo() -> tuple[np.ndarray, int]:
    """Run `make demo`'s commands here: tau_1 and its truth; demo.txt gets what they print."""
    demo_data(["demo", "--adults", "--rows", str(ROWS), "--seed", str(SEED)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        options = [word for word in DEMO if word != "--quiet"]
        code = command(["risk", "demo/sample.csv", "--levels", "demo/levels.csv", *options,
                        "--out", "demo"])  # fmt: skip
        demo_data(["demo", "--compare"])
    if code:
        raise SystemExit(code)
    (HERE / "demo.txt").write_text(printed.getvalue())
    text, quoted = README.read_text(), f"```text\n{printed.getvalue()}```"
    README.write_text(re.sub(r"```text\n.*?```", lambda _: quoted, text, count=1, flags=re.DOTALL))
    population = census_income(adults=True)
    truth = population.truth(population.sample(ROWS, SEED))
    return read_tau1(Path("demo")), truth.tau1


def everyone() -> tuple[np.ndarray, int]:
    """The same for all persons, with the structural zeros of those under 15 ignored."""
    population = census_income()
    truth = population.write_sample("everyone", ROWS, SEED)
    options = ["--population-size", str(len(population)), *DEMO[2:]]
    code = command(["risk", "everyone/sample.csv", "--levels", "everyone/levels.csv", *options,
                    "--out", "everyone"])  # fmt: skip
    if code:
        raise SystemExit(code)
    return read_tau1(Path("everyone")), truth.tau1


def read_tau1(folder: Path) -> np.ndarray:
    """The draws of tau_1 of a finished run."""
    data = load_arviz().from_netcdf(str(folder / "posterior.nc"))
    return data["posterior"]["tau1"].to_numpy().ravel()


def draw(panels: dict[str, tuple[np.ndarray, int]], path: Path) -> None:
    """Histograms of tau_1 with the 95% interval, the truth in red."""
    from matplotlib.figure import Figure

    matplotlib.rcParams["font.family"] = "sans-serif"
    figure = Figure(figsize=(9, 3), layout="constrained")
    for axes, (title, (tau1, truth)) in zip(
        figure.subplots(1, 2, sharex=True, sharey=True), panels.items(), strict=True
    ):
        low, high = np.quantile(tau1, [0.025, 0.975])
        values, counts = np.unique(tau1, return_counts=True)
        axes.axvspan(low - 0.5, high + 0.5, ymax=0.84, color="#e4edf4", lw=0,
                     label=f"95% interval: {low:.0f} to {high:.0f}")  # fmt: skip
        axes.bar(values, counts / tau1.size, color="#1f5f8b", label=f"mean: {tau1.mean():.1f}")
        axes.axvline(truth, ymax=0.84, color="red", lw=2, label=f"truth: {truth}")
        axes.set(xlabel="sample uniques that are unique in the population", title=title)
        axes.margins(y=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9, ncols=3, loc="upper center", handlelength=1,
                    columnspacing=1)  # fmt: skip
    figure.supylabel("posterior probability", fontsize=10)
    figure.savefig(path, dpi=110)


def evaluation() -> Path:
    """Synthetic files of 5,000 persons under structural zeros, judged: the page."""
    population = census_income()
    population.write_sample("persons", 5000, SEED)
    population.frame.to_parquet("persons/population.parquet", index=False)
    zeros = str(HERE.parents[1] / "synthesis" / "repeated_sampling" / "conditions.csv")
    common = ["--levels", "persons/levels.csv", "--conditions", zeros, "--quiet"]
    files = [f"synthetic/synthetic_{m}.csv" for m in range(1, 6)]
    for words in (
        ["synthesize", "persons/sample.csv", *common, *DEMO[2:-1], "--out", "synthetic"],
        ["evaluate", "persons/sample.csv", *files, *common, "--population",
         "persons/population.parquet", "--out", "evaluation"],
    ):  # fmt: skip
        if code := command(words):
            raise SystemExit(code)
    return Path("evaluation/report.html")


def screenshot(page: Path, path: Path, height: int = 965) -> None:
    """The top of a report, in 64 colours."""
    browser = shutil.which("chromium")
    if browser is None:
        print(f"no chromium: {path.name} is left as it was")
        return
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser, *CHROMIUM, f"--user-data-dir={profile}", f"--screenshot={path}",
             f"--window-size=980,{height}", page.resolve().as_uri()],
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    from PIL import Image

    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


def main() -> None:
    """Work in an empty folder, so that the demo's files have the names they have for users."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["evaluation"])
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        screenshot(evaluation(), HERE / "evaluation.png", 1255)
        if only:
            return
        panels = {"persons of 15 and over (the demo)": demo(), "all persons": everyone()}
        draw(panels, HERE / "tau1.png")
        screenshot(Path("demo/report.html"), HERE / "report.png")
        os.chdir(HERE)
    for name, (tau1, truth) in panels.items():
        low, high = np.quantile(tau1, [0.025, 0.975])
        print(f"{name}: mean {tau1.mean():.1f}, {low:.0f} to {high:.0f}, truth {truth}")
    print(f"bnp-models {bnp.__version__}; written: tau1.png, report.png, demo.txt in {HERE}")


if __name__ == "__main__":
    main()
