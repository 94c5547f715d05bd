"""The architecture: which package may import which, what stays private, what imports without torch, and the lock."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
FILES = sorted(SOURCE.rglob("*.py"))
LIBRARY = sorted((SOURCE / "lresnet").rglob("*.py"))
# These files may use the public names of `lresnet` itself; the packages below import from each other by name.
MAY_USE_PUBLIC_NAMES = {"doctor.py", "testing.py", "__init__.py", "__main__.py"}
# The one reader of run.json files of earlier versions.
READS_OLD_FORMAT = SOURCE / "lresnet" / "runs" / "record.py"


def _lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def _copy(to: Path) -> Path:
    for name in ("lresnet", "lresnet_paper"):
        shutil.copytree(SOURCE / name, to / "src" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)
    return to / "src" / "lresnet"


def test_the_packages_keep_their_contracts(tmp_path: Path) -> None:
    _copy(tmp_path)
    result = _lint_imports(tmp_path)
    assert result.returncode == 0, result.stdout
    assert "2 kept, 0 broken" in result.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("geometry/intruder.py", "from lresnet.residual import make_residual"),
        ("kernels/intruder.py", "from lresnet.residual.lorentz import lorentz_residual"),
        ("train/intruder.py", "from lresnet.runs.run import fit"),
        ("runs/intruder.py", "from lresnet_paper.run import Run"),
    ],
)
def test_a_forbidden_import_is_found(file: str, line: str, tmp_path: Path) -> None:
    package = _copy(tmp_path)
    (package / file).write_text(f"{line}\n")
    result = _lint_imports(tmp_path)
    assert result.returncode != 0
    assert f"lresnet.{file[:-3].replace('/', '.')}" in result.stdout


def test_a_new_package_must_be_given_its_place(tmp_path: Path) -> None:
    package = _copy(tmp_path)
    (package / "attic.py").touch()
    result = _lint_imports(tmp_path)
    assert result.returncode != 0
    assert "attic" in result.stdout + result.stderr


@pytest.mark.parametrize("file", LIBRARY, ids=lambda file: str(file.relative_to(SOURCE)))
def test_packages_import_from_each_other_by_name(file: Path) -> None:
    if file.parent == SOURCE / "lresnet" and file.name in MAY_USE_PUBLIC_NAMES:
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lresnet":
            assert node.attr == "__version__", f"line {node.lineno}: import {node.attr} from its package"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_private_names_are_not_imported_across_packages(file: Path) -> None:
    package = file.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None or not node.module.startswith("lresnet"):
            continue
        same = tuple(node.module.split("."))[: len(package)] == package and len(package) > 1
        private = [alias.name for alias in node.names if re.match("_[a-z]", alias.name)]
        assert same or not private, f"line {node.lineno}: {private} of {node.module}"


def test_the_library_does_not_speak_of_the_tables_of_the_paper() -> None:
    """A task and a split, not a cell and a protocol."""
    names = "cells?|protocols?|claims?|gnn|graph_transformer|oversmoothing|commutativity"
    words = re.compile(rf"\b({names})\b", re.IGNORECASE)
    # Pickle's protocol, closure cells, and typing.Protocol.
    allowed = re.compile(r"__reduce|protocol: int|protocol 2|__closure__|cell_contents|co_freevars|import .*Protocol")
    found = []
    for file in LIBRARY:
        if file == READS_OLD_FORMAT:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if words.search(line) and not allowed.search(line):
                found.append(f"{file.relative_to(SOURCE)}:{number}: {line.strip()}")
    assert found == []


def test_the_command_line_imports_its_work_when_called() -> None:
    """The modules of the command line import at their top only what loads without torch."""
    code = (
        "import sys, importlib, pathlib, lresnet.cli\n"
        "for file in pathlib.Path(lresnet.cli.__file__).parent.glob('*.py'):\n"
        "    importlib.import_module(f'lresnet.cli.{file.stem}')\n"
        "print(*sys.modules)"
    )
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    heavy = {"torch", "numpy", "scipy", "geoopt", "torch_geometric", "matplotlib", "rich.console"}
    assert heavy.isdisjoint(modules)


def test_the_lock_pins_every_dependency_exactly() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    pin = r'[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+(; platform_system == "Linux")?'
    assert all(re.fullmatch(pin, line) for line in pins)
    assert "torch==2.13.0" in pins  # without a local version, so that pip takes the build its index offers
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = {_canonical(line.partition("==")[0]) for line in pins}
    assert {_canonical(re.split(r"[<>=~!;\[ ]", name)[0]) for name in wanted} <= locked


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
