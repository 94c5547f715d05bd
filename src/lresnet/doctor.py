"""What ``lresnet doctor`` finds out: versions, devices, folders, and whether the numerics hold on this machine."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lresnet import functional
from lresnet._version import __version__
from lresnet.geometry import Lorentz
from lresnet.residual import METHODS, make_residual

__all__ = [
    "Check",
    "Findings",
    "examine",
    "print_json",
    "print_tables",
    "run_checks",
]


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
    "jinja2",
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
    from lresnet.kernels import is_available

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
    from lresnet.doctor import run_checks

    return [check for device in devices for check in run_checks(device)]


_CURVATURES = (-0.1, -1.0, -2.0, -10.0)
_NORMS = (1e-3, 1.0, 1e2, 1e3, 1e4)
_KINDS = tuple(method.name for method in METHODS.values() if method.role == "residual")


class Check(NamedTuple):
    """One promise, and whether it was kept here."""

    name: str
    device: str
    ok: bool
    detail: str


def run_checks(device: str) -> list[Check]:
    """Run every check on ``device``. A check that raises counts as failed, with the error as its detail."""
    return [_run(name, check, device) for name, check in _CHECKS.items()]


def _run(name: str, check: Callable[[str], tuple[bool, str]], device: str) -> Check:
    try:
        ok, detail = check(device)
    except Exception as error:  # on a broken machine anything may be raised, and the doctor has to name it
        ok, detail = False, f"{type(error).__name__}: {error}"
    return Check(name, device, ok, detail)


def _paper_example(device: str) -> tuple[bool, str]:
    x, y = torch.tensor([2.0, -2.0], device=device), torch.tensor([2.0, 2.0], device=device)
    forward = functional.parallel_transport_residual(x, y, K=-1.0).tolist()
    backward = functional.parallel_transport_residual(y, x, K=-1.0).tolist()
    error = math.dist([*forward, *backward], [8.0, -4.0, 8.0, 4.0])
    return error < 1e-5, f"x (+) y = {_short(forward)}, y (+) x = {_short(backward)}"


def _lorentz_accuracy(device: str) -> tuple[bool, str]:
    """Geodesic error at most 4 times that of the exact result rounded to float32, plus 3e-7/sqrt(kappa).

    Both are the largest of their family of pairs: a single exact result may happen to need no rounding at all.
    """
    worst, where = 0.0, "nothing was measured"
    for K in _CURVATURES:
        for norm in _NORMS:
            for family, x, y in _pairs(norm):
                exact = _lorentz64(x, y, -K)
                got = functional.lorentz_residual(x.to(device), y.to(device), K=K).cpu()
                rounding = float(_distance64(exact.float().double(), exact, -K).max())
                error = float(_distance64(got.double(), exact, -K).max())
                ratio = error / (4 * rounding + 3e-7 / math.sqrt(-K))
                here = f"{family} points, norm {norm:g}, K = {K:g}"
                if math.isnan(ratio):
                    return False, f"not a number ({here})"
                worst, where = max((worst, where), (ratio, here))
    return worst <= 1, f"at worst {worst:.2f} of what is allowed ({where})"


def _equal_points(device: str) -> tuple[bool, str]:
    for K in _CURVATURES:
        M = Lorentz(K).to(device)
        for norm in _NORMS:
            x = _directions(64, seed=1).mul(norm).to(device)
            if not torch.equal(functional.lorentz_residual(x, x, K=K), x):
                return False, f"the residual of x and x is not x at norm {norm:g}, K = {K:g}"
            if M.dist(x, x).any() or M.logmap(x, x).any():
                return False, f"dist(x, x) or logmap(x, x) is not 0 at norm {norm:g}, K = {K:g}"
    return True, "dist(x, x) and logmap(x, x) are 0, the residual of x and x is x"


def _commutative(device: str) -> tuple[bool, str]:
    for norm in _NORMS:
        for family, x, y in _pairs(norm):
            here, there = x.to(device), y.to(device)
            if not torch.equal(functional.lorentz_residual(here, there), functional.lorentz_residual(there, here)):
                return False, f"x (+) y and y (+) x differ for {family} points of norm {norm:g}"
    return True, "x (+) y and y (+) x are equal to the last bit"


def _finite_gradients(device: str) -> tuple[bool, str]:
    zero, tiny, point = torch.zeros(4), torch.full((4,), 1e-40), torch.arange(4.0)
    for kind in _KINDS:
        residual = make_residual(kind, Lorentz(-1.0)).to(device)
        for a in (zero, tiny, point):
            for b in (zero, tiny, point):
                x, y = (leaf.clone().to(device).requires_grad_() for leaf in (a, b))
                z = residual(x, y)
                gradients = torch.autograd.grad(z.sum(), (x, y))
                if not all(value.isfinite().all() for value in (z, *gradients)):
                    return False, f"{kind} residual of {_short(a.tolist())} and {_short(b.tolist())}"
    return True, f"{len(_KINDS)} residuals at zeros, subnormals and ordinary points"


_CHECKS = {
    "the paper's example": _paper_example,
    "Lorentz residual, float32": _lorentz_accuracy,
    "equal points": _equal_points,
    "commutative": _commutative,
    "finite gradients": _finite_gradients,
}


def _directions(count: int, seed: int) -> Tensor:
    """Random unit vectors, the same on every machine and device."""
    return torch.nn.functional.normalize(torch.randn(count, 16, generator=torch.Generator().manual_seed(seed)), dim=-1)


def _pairs(norm: float) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Pairs of points of space norm ``norm``, in float32, of every kind that has been seen to lose digits."""
    x, v = norm * _directions(256, seed=0), norm * _directions(256, seed=1)
    yield "random", x, v
    yield "near", x, x + 1e-3 * v
    yield "equal", x, x
    yield "radial", x, 1.5 * x
    yield "half-zero", x, torch.zeros_like(x)


def _time64(x: Tensor, kappa: float) -> Tensor:
    return (x.square().sum(-1, keepdim=True) + 1 / kappa).sqrt()


def _separation64(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    """``<x - y, x - y>`` with the difference of the times rationalised: good to 1e-9 for norms up to 1e4."""
    d = x - y
    dt = (d * (x + y)).sum(-1, keepdim=True) / (_time64(x, kappa) + _time64(y, kappa))
    return (d.square().sum(-1, keepdim=True) - dt.square()).clamp(min=0)


def _lorentz64(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    x, y = x.double(), y.double()
    return (x + y) / (4 + kappa * _separation64(x, y, kappa)).sqrt()


def _distance64(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    half = (kappa * _separation64(x, y, kappa)).sqrt() / 2
    return 2 / math.sqrt(kappa) * half.asinh()


def _short(values: list[float]) -> str:
    return "[" + ", ".join(f"{value:g}" for value in values) + "]"
