"""What ``lresnet doctor`` finds out: versions, devices, folders, and whether the numerics hold on this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lresnet._version import __version__

if TYPE_CHECKING:
    from lresnet.selfcheck import Check

__all__ = ["Findings", "examine", "print_json", "print_tables"]

# What pyproject.toml asks for.
_PACKAGES = (
    "torch",
    "torch_geometric",
    "geoopt",
    "numpy",
    "scipy",
    "safetensors",
    "pooch",
    "tyro",
    "rich",
    "matplotlib",
    "pillow",
)


@dataclass(frozen=True)
class Findings:
    """Everything the doctor reports."""

    environment: dict[str, str]
    """Topic and what was found, in the order to print."""
    checks: list[Check]
    """The self-check, once per device."""
    problems: list[str]
    """What has to be mended before lresnet can work: missing packages, failed checks."""
    seconds: float
    """How long the self-check took."""

    @property
    def ok(self) -> bool:
        """Whether nothing has to be mended."""
        return not self.problems


def examine() -> Findings:
    """Look at this machine and run the self-check on the CPU and, where there is one, on the current CUDA device."""
    versions = {name: _version(name) for name in _PACKAGES}
    environment = {
        "lresnet": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        **{name: version or "missing" for name, version in versions.items()},
    }
    problems = [f"{name} is missing: pip install {name}" for name, version in versions.items() if version is None]
    devices: list[str] = []
    if not problems:
        devices = ["cpu", "cuda"] if _has_cuda() else ["cpu"]
        environment |= {"threads": _threads(), "CUDA": _cuda()}
        environment |= {"fused kernels": _kernels(), **_data_roots()}
    environment["current folder"] = f"{Path.cwd()} ({_access(Path.cwd())})"

    started = time.perf_counter()
    checks = _self_check(devices)
    problems += [f"{check.name} on {check.device}: {check.detail}" for check in checks if not check.ok]
    return Findings(environment, checks, problems, time.perf_counter() - started)


def print_json(findings: Findings) -> None:
    """Print the findings as one JSON object."""
    checks = [check._asdict() for check in findings.checks]
    print(json.dumps({"ok": findings.ok, **asdict(findings), "checks": checks}, indent=2))  # noqa: T201


def print_tables(findings: Findings) -> None:
    """Print the findings for a reader."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title="This machine", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for topic, value in findings.environment.items():
        table.add_row(topic, escape(value))
    console.print(table)

    table = Table(title=f"Self-check of the numerics ({findings.seconds:.1f} s)", title_justify="left")
    for heading in ("promise", "device", "kept", "measured"):
        table.add_column(heading, overflow="fold")
    for check in findings.checks:
        table.add_row(check.name, check.device, "yes" if check.ok else "[bold red]NO[/]", escape(check.detail))
    console.print(table)
    for problem in findings.problems:
        console.print(f"[bold red]problem:[/] {escape(problem)}", highlight=False)
    if findings.ok:
        console.print("Everything is in order.")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _threads() -> str:
    import torch

    return f"{torch.get_num_threads()} of {os.cpu_count()} CPUs"


def _has_cuda() -> bool:
    import torch

    with warnings.catch_warnings():  # an old driver warns here; _cuda says it in words
        warnings.simplefilter("ignore")
        return torch.cuda.is_available()


def _cuda() -> str:
    """Which CUDA devices can be used, or why none can."""
    import torch

    if torch.version.cuda is None:
        return f"no: torch {torch.__version__} is built without CUDA"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        reason = str(caught[0].message) if caught else "no NVIDIA GPU or no driver is visible"
        return f"no: torch is built for CUDA {torch.version.cuda}, but {reason}"
    cards = []
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        cards.append(f"{card.name} (capability {card.major}.{card.minor}, {card.total_memory / 2**30:.0f} GiB)")
    return f"{', '.join(cards)}; torch is built for CUDA {torch.version.cuda}{_driver()}"


def _driver() -> str:
    """The driver's version, where the system tells it."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return ""
    numbers = [word for word in words if word[0].isdigit() and "." in word]
    return f", driver {numbers[0]}" if numbers else ""


def _kernels() -> str:
    """Whether the fused CUDA kernels run, and why not."""
    from lresnet.residual.kernels import is_available

    found = is_available()
    return f"on: {found.reason}" if found else f"off: {found.reason}; the reference formulas run"


def _data_roots() -> dict[str, str]:
    """The folders data is looked for in; the last one takes downloads."""
    from lresnet.data.files import data_roots

    roots = data_roots()
    names = ["data root"] if len(roots) == 1 else [f"data root {number}" for number in range(1, len(roots) + 1)]
    return {name: f"{root} ({_access(root)})" for name, root in zip(names, roots, strict=True)}


def _access(folder: Path) -> str:
    """Whether files can be written in ``folder``, tried on the nearest folder that exists."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return f"not writable: {error.strerror}"
    return "writable" if existing == folder else "does not exist yet, can be created"


def _self_check(devices: list[str]) -> list[Check]:
    if not devices:
        return []
    from lresnet.selfcheck import run_checks

    return [check for device in devices for check in run_checks(device)]
