"""The report of ``lresnet doctor``: versions, devices, folders, and checks of the numerics on this machine.

Importing this module needs none of the dependencies, so that it can report which of them are missing.
"""

from __future__ import annotations

import importlib.metadata
import itertools
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
from typing import TYPE_CHECKING, NamedTuple

import lresnet
from lresnet.residual.registry import METHODS

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Check", "Findings", "examine", "print_json", "print_tables", "run_checks"]

# The dependencies in pyproject.toml.
_PACKAGES = (
    "torch",
    "torch_geometric",
    "geoopt",
    "numpy",
    "scipy",
    "networkx",
    "safetensors",
    "pooch",
    "tyro",
    "rich",
    "matplotlib",
    "pillow",
    "jinja2",
)


class Check(NamedTuple):
    """One check of the numerics, and whether it passed."""

    name: str
    device: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Findings:
    """Everything that ``lresnet doctor`` reports."""

    environment: dict[str, str]
    """Topics and what was found, in the order to print."""
    checks: list[Check]
    """The checks of the numerics, once per device."""
    problems: list[str]
    """What must be fixed before lresnet works: missing packages, failed checks."""
    seconds: float
    """Duration of the checks of the numerics."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def examine() -> Findings:
    """Examine this machine and check the numerics on the CPU and, if there is one, on the current CUDA device."""
    versions = {name: _version(name) for name in _PACKAGES}
    environment = {
        "lresnet": lresnet.__version__,
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
    checks = [check for device in devices for check in run_checks(device)]
    problems += [f"{check.name} on {check.device}: {check.detail}" for check in checks if not check.ok]
    return Findings(environment, checks, problems, time.perf_counter() - started)


def print_json(findings: Findings) -> None:
    """Print the findings as one JSON object."""
    checks = [check._asdict() for check in findings.checks]
    print(json.dumps({"ok": findings.ok, **asdict(findings), "checks": checks}, indent=2))  # noqa: T201


def print_tables(findings: Findings) -> None:
    """Print the findings as tables."""
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
    for heading in ("check", "device", "passed", "measured"):
        table.add_column(heading, overflow="fold")
    for check in findings.checks:
        table.add_row(check.name, check.device, "yes" if check.ok else "[bold red]NO[/]", escape(check.detail))
    console.print(table)
    for problem in findings.problems:
        console.print(f"[bold red]problem:[/] {escape(problem)}", highlight=False)
    if findings.ok:
        console.print("Everything is in order.")


# --- the environment --------------------------------------------------------------------------------------------------


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

    with warnings.catch_warnings():  # torch warns about an old driver; _cuda() reports the warning
        warnings.simplefilter("ignore")
        return torch.cuda.is_available()


def _cuda() -> str:
    """Return the usable CUDA devices, or the reason why there are none."""
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
    """Return the version of the NVIDIA driver, or an empty string if the system does not report it."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return ""
    numbers = [word for word in words if word[0].isdigit() and "." in word]
    return f", driver {numbers[0]}" if numbers else ""


def _kernels() -> str:
    """Return whether the fused CUDA kernels run, with the reason."""
    from lresnet.kernels import is_available

    found = is_available()
    return f"on: {found.reason}" if found else f"off: {found.reason}; the reference formulas run"


def _data_roots() -> dict[str, str]:
    """Return the folders that are searched for data; downloads go to the last one."""
    from lresnet.data.files import data_roots

    roots = data_roots()
    names = ["data root"] if len(roots) == 1 else [f"data root {number}" for number in range(1, len(roots) + 1)]
    return {name: f"{root} ({_access(root)})" for name, root in zip(names, roots, strict=True)}


def _access(folder: Path) -> str:
    """Return whether files can be written in ``folder``, by trying it in the nearest folder that exists."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return f"not writable: {error.strerror}"
    return "writable" if existing == folder else "does not exist yet, can be created"


# --- checks of the numerics -------------------------------------------------------------------------------------------

_CURVATURES = (-0.1, -1.0, -2.0, -10.0)
_NORMS = (1e-3, 1.0, 1e2, 1e3, 1e4)


def run_checks(device: str) -> list[Check]:
    """Run every check of the numerics on ``device``. A check that raises has failed, with the error as its detail."""
    return [_run(name, check, device) for name, check in _CHECKS.items()]


def _run(name: str, check: Callable[[str], tuple[bool, str]], device: str) -> Check:
    try:
        ok, detail = check(device)
    except Exception as error:  # a broken installation may raise anything; report it
        ok, detail = False, f"{type(error).__name__}: {error}"
    return Check(name, device, ok, detail)


def _paper_example(device: str) -> tuple[bool, str]:
    import torch

    x, y = torch.tensor([2.0, -2.0], device=device), torch.tensor([2.0, 2.0], device=device)
    forward = lresnet.functional.parallel_transport_residual(x, y, K=-1.0).tolist()
    backward = lresnet.functional.parallel_transport_residual(y, x, K=-1.0).tolist()
    error = math.dist([*forward, *backward], [8.0, -4.0, 8.0, 4.0])
    return error < 1e-5, f"the paper's example: x (+) y = {_short(forward)}, y (+) x = {_short(backward)}"


def _lorentz_accuracy(device: str) -> tuple[bool, str]:
    """The geodesic error is at most 4 times that of the exact result rounded to float32, plus 3e-7/sqrt(kappa).

    Both errors are the largest of a family of pairs, since a single exact result may need no rounding.
    """
    worst, where = 0.0, "nothing was measured"
    for K in _CURVATURES:
        for norm in _NORMS:
            for family, x, y in _pairs(norm):
                exact = _lorentz64(x, y, -K)
                got = lresnet.functional.lorentz_residual(x.to(device), y.to(device), K=K).cpu()
                error = float(_distance64(got.double(), exact, -K).max())
                ratio = error / _allowed_error(exact, -K)
                here = f"{family} points, norm {norm:g}, K = {K:g}"
                if math.isnan(ratio):
                    return False, f"not a number ({here})"
                worst, where = max((worst, where), (ratio, here))
    return worst <= 1, f"at worst {worst:.2f} of the allowed error ({where})"


def _allowed_error(exact: Tensor, kappa: float) -> float:
    """Return 4 times the error of rounding the exact results to float32, plus 3e-7/sqrt(kappa)."""
    rounding = float(_distance64(exact.float().double(), exact, kappa).max())
    return 4 * rounding + 3e-7 / math.sqrt(kappa)


def _equal_points(device: str) -> tuple[bool, str]:
    import torch

    for K in _CURVATURES:
        M = lresnet.Lorentz(K).to(device)
        for norm in _NORMS:
            x = _directions(64, seed=1).mul(norm).to(device)
            if not torch.equal(lresnet.functional.lorentz_residual(x, x, K=K), x):
                return False, f"the residual of x and x is not x at norm {norm:g}, K = {K:g}"
            if M.dist(x, x).any() or M.logmap(x, x).any():
                return False, f"dist(x, x) or logmap(x, x) is not 0 at norm {norm:g}, K = {K:g}"
    return True, "dist(x, x) and logmap(x, x) are 0, the residual of x and x is x"


def _commutative(device: str) -> tuple[bool, str]:
    """The two orders differ by at most twice the allowed error of :func:`_lorentz_accuracy`.

    The formulas on a CPU are symmetric. The fused kernels round in another order for y (+) x.
    """
    residual, worst = lresnet.functional.lorentz_residual, 0.0
    for K, norm in itertools.product(_CURVATURES, _NORMS):
        for family, x, y in _pairs(norm):
            a, b = x.to(device), y.to(device)
            one, other = (z.cpu().double() for z in (residual(a, b, K=K), residual(b, a, K=K)))
            gap = 0.0 if one.equal(other) else float(_distance64(one, other, -K).max())
            ratio = gap / (2 * _allowed_error(_lorentz64(x, y, -K), -K))
            if not ratio <= 1:
                pair = f"{family} points of norm {norm:g}, K = {K:g}"
                return False, f"x (+) y and y (+) x differ by {gap:.1g} for {pair}"
            worst = max(worst, ratio)
    same = "bit-identical" if worst == 0.0 else f"equal up to rounding ({worst:.2f} of the allowed difference)"
    return True, f"x (+) y and y (+) x are {same}"


def _finite_gradients(device: str) -> tuple[bool, str]:
    import torch

    kinds = [name for name, method in METHODS.items() if method.role == "residual"]
    zero, tiny, point = torch.zeros(4), torch.full((4,), 1e-40), torch.arange(4.0)
    for kind in kinds:
        residual = lresnet.make_residual(kind, lresnet.Lorentz(-1.0)).to(device)
        for a in (zero, tiny, point):
            for b in (zero, tiny, point):
                x, y = (leaf.clone().to(device).requires_grad_() for leaf in (a, b))
                z = residual(x, y)
                gradients = torch.autograd.grad(z.sum(), (x, y))
                if not all(value.isfinite().all() for value in (z, *gradients)):
                    return False, f"{kind} residual of {_short(a.tolist())} and {_short(b.tolist())}"
    return True, f"{len(kinds)} residuals at zeros, subnormals and ordinary points"


_CHECKS = {
    "parallel transport": _paper_example,
    "Lorentz residual, float32": _lorentz_accuracy,
    "equal points": _equal_points,
    "commutative": _commutative,
    "finite gradients": _finite_gradients,
}


def _directions(count: int, seed: int) -> Tensor:
    """Return random unit vectors, the same on every machine and device."""
    import torch

    return torch.nn.functional.normalize(torch.randn(count, 16, generator=torch.Generator().manual_seed(seed)), dim=-1)


def _pairs(norm: float) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield families of float32 pairs of norm ``norm`` for which published formulas are inaccurate."""
    x, v = norm * _directions(256, seed=0), norm * _directions(256, seed=1)
    yield "random", x, v
    yield "near", x, x + 1e-3 * v
    yield "equal", x, x
    yield "radial", x, 1.5 * x
    yield "half-zero", x, x.new_zeros(x.shape)


# The same quantities in float64, without the library's functions.


def _time64(x: Tensor, kappa: float) -> Tensor:
    return (x.square().sum(-1, keepdim=True) + 1 / kappa).sqrt()


def _separation64(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    """Return ``<x - y, x - y>`` with the difference of the times rationalised: accurate to 1e-9 for norms to 1e4."""
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
