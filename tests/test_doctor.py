"""``lresnet doctor``: what it reports, and which faults it finds."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import lresnet
from lresnet import cli, doctor, functional


def test_this_machine_passes() -> None:
    findings = doctor.examine()
    assert findings.problems == []
    assert findings.ok
    assert {check.device for check in findings.checks} >= {"cpu"}
    environment = findings.environment
    assert environment["lresnet"] == lresnet.__version__
    assert environment["torch"].startswith(torch.__version__.split("+")[0])
    assert environment["CUDA"].startswith("no: ") == (not torch.cuda.is_available())


def test_tables_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("torch", "geoopt", "CUDA", "fused kernels", "data root", "Self-check"))
    assert "Everything is in order." in out


def test_json_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["problems"] == []
    assert report["environment"]["lresnet"] == lresnet.__version__
    assert {"name", "device", "ok", "detail"} == set(report["checks"][0])


def test_a_missing_package_is_a_problem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "geoopt" else found(name))
    assert cli.main(["doctor"]) == 1
    assert "geoopt is missing: pip install geoopt" in capsys.readouterr().out


def test_missing_torch_and_geoopt_are_reported() -> None:
    code = """
import sys
sys.modules["torch"] = sys.modules["geoopt"] = None  # importing them raises ImportError
from lresnet import doctor
doctor._version = lambda name: None if name in ("torch", "geoopt") else "1.0"
print(*doctor.examine().problems, sep=", ")
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found == "torch is missing: pip install torch, geoopt is missing: pip install geoopt\n"


def test_a_wrong_formula_is_a_problem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def released(x: torch.Tensor, y: torch.Tensor, *, K: float = -1.0) -> torch.Tensor:
        """The textbook form: the norm of the sum by subtraction."""
        time = sum((v.square().sum(-1, keepdim=True) - 1 / K).sqrt() for v in (x, y))
        total = x + y
        return total / (-K * (time.square() - total.square().sum(-1, keepdim=True)).abs()).sqrt()

    monkeypatch.setattr(functional, "lorentz_residual", released)
    assert cli.main(["doctor"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "problem: Lorentz residual, float32 on cpu" in out
    assert "in order" not in out


@pytest.mark.parametrize(
    ("name", "broken", "failed"),
    [
        ("parallel_transport_residual", lambda x, y, K: x + y, "parallel transport"),
        ("lorentz_residual", lambda x, y, K=-1.0: x / 0 * 0, "Lorentz residual, float32"),
        ("lorentz_residual", lambda x, y, K=-1.0: (x + y) / 2 * (1 + 1e-7), "equal points"),
        ("lorentz_residual", lambda x, y, K=-1.0: x, "commutative"),
    ],
)
def test_each_check_of_a_function_can_fail(
    name: str, broken: object, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functional, name, broken)
    assert failed in {check.name for check in doctor.run_checks("cpu") if not check.ok}


def test_the_check_of_gradients_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    textbook = lresnet.make_residual("tangent_textbook", lresnet.Lorentz(-1.0))
    monkeypatch.setattr(lresnet, "make_residual", lambda kind, M: textbook)
    failed = {check.name: check.detail for check in doctor.run_checks("cpu") if not check.ok}
    assert list(failed) == ["finite gradients"]
    assert "[0, 0, 0, 0]" in failed["finite gradients"]


def test_a_check_that_raises_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(functional, "parallel_transport_residual", broken)
    check = doctor.run_checks("cpu")[0]
    assert not check.ok
    assert check.detail == "RuntimeError: no kernel image"


def test_the_reason_why_kernels_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRESNET_KERNELS", "off")
    words = "off: switched off by LRESNET_KERNELS in the environment; the reference formulas run"
    assert doctor._kernels() == words


def test_every_data_root_is_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LRESNET_DATA", os.pathsep.join([str(tmp_path), str(tmp_path / "new")]))
    assert doctor._data_roots() == {
        "data root 1": f"{tmp_path} (writable)",
        "data root 2": f"{tmp_path / 'new'} (does not exist yet, can be created)",
    }
    monkeypatch.delenv("LRESNET_DATA")
    assert list(doctor._data_roots()) == ["data root"]


def test_every_dependency_is_checked() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [name.partition(">=")[0] for name in project["dependencies"]] == list(doctor._PACKAGES)


def test_write_access(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert doctor._access(tmp_path) == "writable"
    assert doctor._access(tmp_path / "a" / "b") == "does not exist yet, can be created"
    assert doctor._access(tmp_path / "file") == "not writable: Not a directory"
    assert doctor._access(tmp_path / "file" / "b").startswith("not writable")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]
