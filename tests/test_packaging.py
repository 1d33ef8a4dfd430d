"""What pyproject.toml says agrees with the tree; `.ci/run` builds and installs the wheel itself."""

import ast
import importlib.util
import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from public import NAMESPACES, names_in

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


def test_kernels_are_reached_by_a_relative_link():
    link = ROOT / "bnp_models" / "kernels"
    assert link.is_symlink()
    assert os.readlink(link) == "../kernels"
    assert (link / "__init__.py").samefile(ROOT / "kernels" / "__init__.py")


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Folders of a wheel and a source archive, built twice from copies made at other times."""
    folders = []
    for k in range(2):
        copy = tmp_path_factory.mktemp("tree") / "tree"
        for path in ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"]:
            copy.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / path, copy / path)
            os.utime(copy / path, (10**9 + k, 10**9 + k))
        for folder in ("bnp_models", "kernels"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(copy / "dist")]
        subprocess.run(command, cwd=copy, check=True, capture_output=True)
        folders.append(copy / "dist")
    return folders


def test_a_build_has_the_same_bytes_twice(builds):
    first, second = ({path.name: path.read_bytes() for path in dist.iterdir()} for dist in builds)
    assert sorted(first) == [
        f"bnp_models-{bnp_models.__version__}-py3-none-any.whl",
        f"bnp_models-{bnp_models.__version__}.tar.gz",
    ]
    assert first == second


def test_a_wheel_has_every_file_of_the_package(builds):
    (wheel,) = builds[0].glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    # Of the kernels too, which are behind a link.
    tree = {
        path.relative_to(ROOT).as_posix()
        for folder in ("bnp_models", "bnp_models/kernels")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == tree


def test_one_version():
    assert "version" in project()["project"]["dynamic"]
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {bnp_models.__version__}\n" in cited
    assert f"\n## {bnp_models.__version__} " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("namespace", ["", *NAMESPACES])
def test_every_public_name_is_there(namespace):
    place = importlib.import_module(f"bnp_models.{namespace}".rstrip("."))
    names = names_in(namespace)
    assert names
    for name in names:
        assert getattr(place, name) is not None
    assert set(names) <= set(dir(place))


def test_what_a_notebook_types_first_is_at_the_top():
    assert len(names_in("")) <= 64
    assert set(NAMESPACES) <= set(bnp_models.__all__)


def families() -> dict[str, set[str]]:
    """Folders of kernels, and the modules of each."""
    found = {"kernels": set()}
    start = bnp_models.kernels.__path__, "bnp_models.kernels."
    for module in pkgutil.walk_packages(*start):
        folder, _, name = module.name.removeprefix("bnp_models.").rpartition(".")
        found.setdefault(folder, set()).add(name)
    return found


def test_every_name_is_found_whatever_was_used_before():
    """True of all orders, because no package needs, or is disturbed by, what others import.

    An import sets modules on their packages, and nothing else. So a package gives each name by
    itself, and none of its modules has the name of something else.
    """
    packages = {name: set(names_in(name)) for name in NAMESPACES} | families()
    packages[""] = set(bnp_models.__all__)
    assert "gamma" in packages["kernels.variates"]
    for place, names in packages.items():
        package = importlib.import_module(f"bnp_models.{place}".rstrip("."))
        modules = {module.name for module in pkgutil.iter_modules(getattr(package, "__path__", []))}
        by_itself = vars(package).get("__getattr__")
        for name in names:
            value = getattr(package, name)
            assert by_itself is None or by_itself(name) is value, (place, name)
            assert name not in modules or inspect.ismodule(value), (place, name)
            # Without access by name, only what the file itself binds is always there.
            bound = by_itself or re.search(rf"\b{name}\b", Path(package.__file__).read_text())
            assert bound, (place, name)


def test_names_are_found_after_sample():
    """In a process that has used nothing else; the families of kernels are set by its imports."""
    names = [f"{folder}.{name}" for folder, names in families().items() for name in sorted(names)]
    assert len(names) > 40
    script = "import operator, sys, bnp_models as bnp; bnp.sample"
    script += "\nfor name in sys.argv[1:]: operator.attrgetter(name)(bnp)"
    done = subprocess.run(
        [sys.executable, "-c", script, *names], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_wheel_check_knows_the_tree():
    spec = importlib.util.spec_from_file_location("check_wheel", ROOT / "tests/check_wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = module.tree_modules(ROOT)
    assert {"bnp_models", "bnp_models.cli", "bnp_models.kernels.variates.sticks"} <= names
    assert not any(name.startswith("kernels") for name in names)


@pytest.mark.parametrize("path", sorted((ROOT / "constraints").iterdir()), ids=lambda x: x.stem)
def test_constraints_meet_what_is_declared(path):
    pinned = {
        canonicalize_name(found.name): found.specifier
        for found in map(Requirement, path.read_text().splitlines())
    }
    assert all(len(found) == 1 and str(found).startswith("==") for found in pinned.values())
    extras = project()["project"]["optional-dependencies"]
    for line in project()["project"]["dependencies"] + extras["test"]:
        wanted = Requirement(line)
        (version,) = pinned[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(version.version), line
