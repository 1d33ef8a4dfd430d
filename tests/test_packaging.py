"""What pyproject.toml says agrees with the tree; `.ci/run` builds and installs the wheel itself."""

import ast
import importlib.util
import os
import sys
import tomllib
from pathlib import Path

import setuptools

import bnp_models

ROOT = Path(__file__).parent.parent


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_what_is_imported_is_declared():
    """Every package that some module imports is a dependency, or brought by an extra."""
    declared = project()["project"]["dependencies"]
    for extra in ("formats", "trees"):
        declared = declared + project()["project"]["optional-dependencies"][extra]
    known = {line.split(">")[0].replace("-", "_") for line in declared}
    modules = {"scikit_learn": "sklearn", "pyyaml": "yaml"}
    known = {modules.get(name, name) for name in known} | {"bnp_models"} | sys.stdlib_module_names
    imported = set()
    for path in [*(ROOT / "bnp_models").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
    assert imported <= known, imported - known
    # Imported by name, or by xarray, which is told to write by h5netcdf.
    assert {"arviz", "h5netcdf", "h5py", "pyarrow"} <= known


def test_every_package_is_found():
    folders = [path.parent for path in (ROOT / "bnp_models").rglob("__init__.py")]
    folders += [
        Path(ROOT / "bnp_models") / path.parent.relative_to(ROOT)
        for path in (ROOT / "kernels").rglob("__init__.py")
    ]
    expected = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    include = project()["tool"]["setuptools"]["packages"]["find"]["include"]
    assert set(setuptools.find_packages(str(ROOT), include=include)) == expected


def test_kernels_are_reached_by_a_relative_link():
    link = ROOT / "bnp_models" / "kernels"
    assert link.is_symlink()
    assert os.readlink(link) == "../kernels"
    assert (link / "__init__.py").samefile(ROOT / "kernels" / "__init__.py")


def test_one_version():
    assert project()["project"]["version"] == bnp_models.__version__


def test_data_files_are_listed():
    listed = project()["tool"]["setuptools"]["package-data"]
    for package, patterns in listed.items():
        folder = ROOT.joinpath(*package.split("."))
        assert all(list(folder.glob(pattern)) for pattern in patterns)
    others = [
        path
        for path in (ROOT / "bnp_models").rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    for path in others:
        owners = [p for p in listed if ROOT.joinpath(*p.split(".")) in path.parents]
        package = max(owners, key=len, default=None)
        assert package is not None, path
        within = path.relative_to(ROOT.joinpath(*package.split(".")))
        assert any(within.match(pattern) for pattern in listed[package]), path


def test_type_checkers_see_the_public_names():
    """The imports of `if TYPE_CHECKING:` are those that `_EXPORTS` makes when a name is used."""
    tree = ast.parse((ROOT / "bnp_models/__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: f"{node.module}.{alias.name}" for node in block.body for alias in node.names
    }
    exports = {name: f"bnp_models.{module}.{name}" for name, module in bnp_models._EXPORTS.items()}
    assert seen == exports | {name: f"bnp_models.{name}" for name in ("datasets", "kernels")}
    assert set(seen) | {"__version__"} == set(bnp_models.__all__)


def test_every_public_name_is_there():
    for name in bnp_models.__all__:
        assert getattr(bnp_models, name) is not None


def test_the_wheel_check_knows_the_tree():
    spec = importlib.util.spec_from_file_location("check_wheel", ROOT / "tests/check_wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = module.tree_modules(ROOT)
    assert {"bnp_models", "bnp_models.cli", "bnp_models.kernels.variates.sticks"} <= names
    assert not any(name.startswith("kernels") for name in names)
