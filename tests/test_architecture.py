"""The rules of the house: which room may import which, how long a file may be, what imports may not do."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lresnet"
FILES = sorted(SOURCE.rglob("*.py"))
# What a person calls may use the package's own front door; the rooms below may not, it would hide the import rule.
FRONT_DOOR = {"doctor.py", "testing.py", "selfcheck.py", "__init__.py", "__main__.py"}


def _lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def _copy(to: Path) -> Path:
    shutil.copytree(SOURCE, to / "src" / "lresnet", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)
    return to / "src" / "lresnet"


def test_rooms_import_only_from_rooms_below_them(tmp_path: Path) -> None:
    _copy(tmp_path)
    result = _lint_imports(tmp_path)
    assert result.returncode == 0, result.stdout
    assert "1 kept, 0 broken" in result.stdout


def test_a_forbidden_import_is_found(tmp_path: Path) -> None:
    package = _copy(tmp_path)
    (package / "geometry" / "intruder.py").write_text("from lresnet.residual import make_residual\n")
    result = _lint_imports(tmp_path)
    assert result.returncode != 0
    assert "lresnet.geometry.intruder" in result.stdout


def test_a_new_room_has_to_take_its_place(tmp_path: Path) -> None:
    package = _copy(tmp_path)
    (package / "attic.py").touch()
    result = _lint_imports(tmp_path)
    assert result.returncode != 0
    assert "attic" in result.stdout + result.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_file_can_be_read_in_one_sitting(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_rooms_do_not_go_through_the_front_door(file: Path) -> None:
    if file.parent == SOURCE and file.name in FRONT_DOOR:
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lresnet":
            assert node.attr == "__version__", f"line {node.lineno}: import {node.attr} from its room"


def test_the_command_line_imports_its_work_when_called() -> None:
    files = sorted((SOURCE / "cli").glob("*.py"))
    assert len(files) > 3
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        modules = {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
        modules |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        own = {module for module in modules if module.startswith("lresnet") and not module.startswith("lresnet.cli.")}
        assert own <= {"lresnet._version"}, file


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
