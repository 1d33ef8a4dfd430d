"""Import every module of an installed wheel and compare the list with the tree.

Run from outside the repository, with the Python that has the wheel:
``python -P check_wheel.py REPOSITORY``.
"""

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path


def tree_modules(repository: Path) -> set[str]:
    """Modules in the tree; `kernels/` counts as `bnp_models/kernels/`."""
    files = [path.relative_to(repository) for path in (repository / "bnp_models").rglob("*.py")]
    files += [
        Path("bnp_models") / path.relative_to(repository)
        for path in (repository / "kernels").rglob("*.py")
    ]
    names = {".".join(path.with_suffix("").parts) for path in files}
    return {name.removesuffix(".__init__") for name in names}


def installed_modules() -> set[str]:
    """Modules of the installed package, each imported."""
    package = importlib.import_module("bnp_models")
    names = {"bnp_models"}
    names |= {found.name for found in pkgutil.walk_packages(package.__path__, "bnp_models.")}
    for name in sorted(names):
        importlib.import_module(name)
    return names


def main(repository: Path) -> None:
    """Stop with a message where the wheel and the tree differ."""
    installed, tree = installed_modules(), tree_modules(repository)
    origin = Path(sys.modules["bnp_models"].__file__).resolve()
    if repository.resolve() in origin.parents:
        raise SystemExit(f"imported from the repository: {origin}")
    if installed != tree:
        raise SystemExit(f"only in the wheel: {sorted(installed - tree)}; "
                         f"only in the tree: {sorted(tree - installed)}")  # fmt: skip
    if importlib.util.find_spec("kernels") is not None:
        raise SystemExit("a top-level module named kernels is installed")
    folder = origin.parent
    for name in (
        "report/templates/base.html.j2",
        "report/templates/risk.html.j2",
        "report/templates/synthesis.html.j2",
        "datasets/bay_area_households.parquet",
        "datasets/census_income.parquet",
        "datasets/southeast_michigan_households.parquet",
    ):
        if not (folder / name).is_file():
            raise SystemExit(f"missing from the wheel: {name}")
    print(f"wheel: {len(installed)} modules import, as in the tree")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
