"""Convert the networks of conversion_models.py, check every result, and render docs/howto/convert_zoo.md.

    python benchmarks/convert_zoo.py                      # all packages that are installed (20 minutes on two cores)
    python benchmarks/convert_zoo.py --only timm/res      # the networks whose name matches, e.g. ^torch/
    python benchmarks/convert_zoo.py --render             # render only, from results/conversion.jsonl

For each network, in a small configuration with random weights:

1. ``find_sums`` runs it once. The number of converted connections is compared with conversion_truth.toml.
2. With ``residual="space"`` the output must be bit-equal to the network's, in float32, in evaluation and training mode.
3. With ``residual="lorentz"`` the error must be proportional to |K| in float64: K = -1e-4, -1e-5, ..., -1e-8.
4. Every added parameter gets a gradient that agrees with finite differences; a copy, a pickled copy and a loaded state
   dict compute the same.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime as dt
import importlib.metadata
import io
import itertools
import json
import math
import platform
import random
import re
import sys
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conversion_models import PACKAGES, Build, Built
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import lresnet
from lresnet_paper.pages.conversion_page import conversion_page, read_conversions, read_hand_counts

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE = ROOT / "results" / "conversion.jsonl", ROOT / "docs" / "howto" / "convert_zoo.md"
TRUTH = tomllib.loads((Path(__file__).parent / "conversion_truth.toml").read_text(encoding="utf-8"))
CURVATURES = (-1e-4, -1e-5, -1e-6, -1e-7, -1e-8)
SMALLER = (-1e-9, -1e-10)  # consulted if the error is not yet proportional to |K| at -1e-8
NO_CURVATURE = -1e-14  # the error that remains is rounding, amplified by the network
STEPS = (1e-6, 1e-7)  # of finite differences
TOLERANCE = 0.05  # of the slope of log(error) over log|K|


def tensors(output: Any) -> list[Tensor]:
    """Return the floating point tensors of an output in order, whatever holds them."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        return [one for value in output.values() for one in tensors(value)]
    if isinstance(output, list | tuple):
        return [one for value in output for one in tensors(value)]
    return [one for value in vars(output).values() for one in tensors(value)] if hasattr(output, "__dict__") else []


def run(net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the outputs. Random numbers, e.g. of dropout, are the same in each run; inputs are never changed."""
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(2)
    args, kwargs = copy.deepcopy((args, kwargs))
    return tensors(net(*args, **kwargs))


class Float64(TorchFunctionMode):
    """Compute in float64 where code asks for float32, as the norms of language models do."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = torch.Tensor.double if func is torch.Tensor.float else func
        args = tuple(torch.float64 if one is torch.float32 else one for one in args)
        kwargs = {key: torch.float64 if one is torch.float32 else one for key, one in (kwargs or {}).items()}
        return func(*args, **kwargs)


def run64(net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    with Float64():
        return run(net, args, kwargs)


def equal(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    same = all(torch.equal(x.nan_to_num(7), y.nan_to_num(7)) for x, y in zip(ours, theirs, strict=False))
    return same and len(ours) == len(theirs)


def error(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """Return the largest difference of an output, relative to the largest entry of that output."""
    pairs = [(x.detach(), y.detach()) for x, y in zip(ours, theirs, strict=True) if y.numel()]
    return max(float((x - y).abs().max() / y.abs().max().clamp(min=1e-30)) for x, y in pairs)


def converted_to(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: converted_to(one, dtype) for key, one in value.items()}
    return tuple(converted_to(one, dtype) for one in value) if isinstance(value, tuple) else value


def set_statistics(norm: Any, inputs: tuple[Tensor, ...]) -> None:
    """Let a batch norm divide its input by the root mean square.

    It subtracts no mean: in a random network the positions of an image are nearly equal, and their differences mostly
    rounding.
    """
    if norm.running_var is not None:
        norm.running_mean.zero_()
        norm.running_var.copy_(inputs[0].detach().square().transpose(0, 1).flatten(1).mean(1))


def prepared(build: Build) -> Built:
    """Return the network with every parameter in use: constant parameters get noise, batch norms their statistics.

    Layer scales of 1e-6 and last layers of 0 would hide an error.
    """
    torch.manual_seed(0)
    net, args, kwargs = build()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.is_floating_point() and parameter.numel() > 1 and bool((parameter == parameter.max()).all()):
                parameter.mul_(0.5 / parameter.abs().max().clamp(min=0.5)).add_(torch.randn_like(parameter), alpha=0.1)
        norms = [one for one in net.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
        hooks = [one.register_forward_pre_hook(set_statistics) for one in norms]
        run(net.eval(), args, kwargs)
        for hook in hooks:
            hook.remove()
    return net.eval(), args, kwargs


def slopes(errors: Sequence[float], floor: float) -> list[float | None]:
    """Return the slope of log(error) over log|K| for each decade; None where rounding is more than 4 % of an error."""
    pairs = itertools.pairwise(errors)
    return [round(math.log10(x / y), 4) if min(x, y) > 25 * floor else None for x, y in pairs]


def measure(build: Build) -> dict[str, Any]:
    """Return what was found and what failed; ``failures`` is empty if all checks hold."""
    try:
        net, args, kwargs = prepared(build)
        with torch.no_grad():
            expected = run(net, args, kwargs)
            reproducible = equal(run(net, args, kwargs), expected)
    except Exception as problem:
        return {"status": "cannot run", "reason": f"{type(problem).__name__}: {problem}"[:300]}
    if not reproducible:
        return {"status": "cannot run", "reason": "two runs with the same seed differ"}
    row: dict[str, Any] = {"parameters": sum(one.numel() for one in net.parameters())}
    stage = "find_sums"
    try:
        plan = lresnet.find_sums(net, *copy.deepcopy(args), **copy.deepcopy(kwargs))
        taken = [one for one in plan.sums if one.converted and one.axis is not None]
        normed = [one for one in plan.sums if one.is_post_norm and not one.converted]
        row |= {"sums": len(plan.sums), "converted": sum(one.calls for one in taken), "places": len(taken)}
        row |= {"post_norm": sum(one.calls for one in normed)}
        row["connections"] = row["converted"] + row["post_norm"]
        left = Counter(one.reason or "its axis is unknown" for one in plan.sums if one not in taken)
        row["reasons"] = dict(left.most_common())
        row["lines"] = dict(Counter(f"{one.class_name}: {one.text}" for one in [*taken, *normed]).most_common())
        if not taken and not normed:
            return row | {"status": "refused" if plan.sums else "nothing to convert", "failures": []}
        stage = "space"
        failures = check_space(net, args, kwargs, plan, expected)
        stage = "lorentz"
        failures += check_lorentz(net, args, kwargs, plan, row) if taken else []
    except Exception as problem:
        return row | {"status": "error", "reason": f"{stage}: {type(problem).__name__}: {problem}"[:600]}
    finally:
        torch.set_default_dtype(torch.float32)
    return row | {"status": "wrong" if failures else "converted" if taken else "post-norm", "failures": failures}


def check_space(
    net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Any, expected: Sequence[Tensor]
) -> list[str]:
    flat, failures = copy.deepcopy(net), []
    sums = lresnet.lorentzify(net, plan=plan, residual="space", curvature=-1e-6)
    with torch.no_grad():
        if not equal(run(sums, args, kwargs), expected):
            failures.append(f"space: differs by {error(run(sums, args, kwargs), expected):.1e}")
        with contextlib.suppress(ValueError):  # a batch norm that sees one value per channel
            training = run(flat.train(), args, kwargs)
            if not equal(run(sums.train(), args, kwargs), training):
                failures.append("space: differs in training mode")
    return failures


def check_lorentz(
    net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Any, row: dict[str, Any]
) -> list[str]:
    """Errors by curvature, and the module's gradient, copy, pickle and state dict."""
    exact, wide, expected = in_float64(net, args, kwargs)
    manifold = lresnet.Lorentz(CURVATURES[0], learnable=True).double()
    with Float64():
        curved = lresnet.lorentzify(exact, plan=plan, curvature=manifold)
        other = lresnet.lorentzify(exact, plan=plan, curvature=lresnet.Lorentz(-1.0, learnable=True).double())
    errors = []
    with torch.no_grad():
        for K in (*CURVATURES, *SMALLER, NO_CURVATURE):
            manifold.log_kappa.fill_(math.log(-K))
            errors.append(error(run64(curved, *wide), expected))
        manifold.log_kappa.fill_(math.log(1e-2))
    if not all(map(math.isfinite, errors)):
        return [f"lorentz: errors {errors}"]
    *all_errors, row["floor"] = errors
    row["errors"], below = all_errors[: len(CURVATURES)], slopes(all_errors[len(CURVATURES) - 1 :], row["floor"])
    row["slopes"] = slopes(row["errors"], row["floor"])
    if row["floor"] > 1e-6:
        return [f"the network magnifies rounding to {row['floor']:.0e}"]
    limit = [one for one in row["slopes"] if one is not None][-1:]  # large curvatures are beyond the linear range
    failures = []
    if any(abs(one - 1) > TOLERANCE for one in limit):  # the linear range may begin below
        row["slopes_below"] = below
        if not any(one is not None and abs(one - 1) <= TOLERANCE for one in below[-1:]):
            failures.append(f"lorentz: slopes {row['slopes']}, then {below}")
    failures += check_gradient(exact, curved, wide)
    return failures + check_copies(curved, other, wide, picklable(net))


def in_float64(net: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[nn.Module, Any, list[Tensor]]:
    """Return network, inputs and outputs in float64; the default dtype becomes float64 if the network needs it."""
    exact, wide = copy.deepcopy(net).to(torch.float64), converted_to((args, kwargs), torch.float64)
    reason = "its output is not float64"
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        try:
            with torch.no_grad():
                outputs = run64(exact, *wide)
        except (RuntimeError, TypeError) as problem:
            reason = str(problem)
            continue
        if all(one.dtype == torch.float64 for one in outputs):
            return exact, wide, outputs
    raise RuntimeError(f"the network does not run in float64: {reason}")


def check_gradient(net: nn.Module, curved: nn.Module, inputs: tuple[Any, Any]) -> list[str]:
    """Every added parameter must have a gradient, and together they must agree with finite differences."""
    own = dict(net.named_parameters())
    added = {name: one for name, one in curved.named_parameters() if name not in own}
    difference = gradient_error(curved, inputs, added)
    missing = [name for name, one in added.items() if one.grad is None or not one.grad.isfinite().all()]
    failures = [f"no finite gradient: {', '.join(missing[:3])} ({len(missing)} of {len(added)})"] if missing else []
    if difference and not gradient_error(net, inputs, own):  # unless the network itself cuts gradients, as RAFT does
        failures.append(difference)
    curved.requires_grad_(False).zero_grad()
    return failures


def gradient_error(net: nn.Module, inputs: tuple[Any, Any], parameters: dict[str, Any]) -> str:
    """Compare the gradient in a random direction with finite differences; "": they agree, or these are not smooth."""
    net.requires_grad_(False)
    for parameter in parameters.values():
        parameter.requires_grad_(parameter.is_floating_point())
    value = loss(net, inputs)
    if not value.requires_grad:  # a reversible block: its gradient starts at the input
        inputs = (tuple(one.clone().requires_grad_() for one in inputs[0]), inputs[1])
        value = loss(net, inputs)
    value.backward()
    torch.manual_seed(3)
    steps = {name: torch.randn_like(one) for name, one in parameters.items()}
    slope = sum(float((one.grad * steps[name]).sum()) for name, one in parameters.items() if one.grad is not None)
    wide, narrow = (directional_derivative(net, inputs, parameters, steps, size) for size in STEPS)
    close = abs(narrow) / 100
    wrong = abs(wide - narrow) < close < abs(slope - narrow)  # kinks of ReLUs and rounding spoil the differences
    return f"gradient {slope:.6g}, by finite differences {narrow:.6g}" if wrong else ""


@torch.no_grad()
def directional_derivative(
    net: nn.Module, inputs: tuple[Any, Any], parameters: dict[str, Any], steps: dict[str, Tensor], size: float
) -> float:
    values = []
    for factor in (size, -2 * size, size):  # forth, back, and to the start
        for name, parameter in parameters.items():
            parameter.add_(steps[name], alpha=factor)
        values.append(float(loss(net, inputs)))
    return (values[0] - values[1]) / (2 * size)


def loss(net: nn.Module, inputs: tuple[Any, Any]) -> Tensor:
    outputs = run64(net, *inputs)
    weights = [torch.linspace(-1, 1, one.numel(), dtype=one.dtype).view_as(one) for one in outputs]
    return torch.stack([(one * weight).mean() for one, weight in zip(outputs, weights, strict=True)]).sum()


@torch.no_grad()
def check_copies(curved: nn.Module, other: nn.Module, inputs: tuple[Any, Any], pickle: bool) -> list[str]:
    """Compare copies up to rounding: matrix products depend on the alignment of the weights in memory."""
    expected = run64(curved, *inputs)
    other.load_state_dict(curved.state_dict())
    copies = {"a deep copy": copy.deepcopy(curved), "a loaded state dict": other}
    if pickle:
        buffer = io.BytesIO()
        torch.save(curved, buffer)
        buffer.seek(0)
        copies["a pickled copy"] = torch.load(buffer, weights_only=False)
    errors = {name: error(run64(one, *inputs), expected) for name, one in copies.items()}
    return [f"{name} differs by {one:.1e}" for name, one in errors.items() if not one < 1e-9]


def picklable(net: nn.Module) -> bool:
    """Whether the network itself can be pickled; many hold a lambda or a local class."""
    try:
        torch.save(net, io.BytesIO())
    except Exception:
        return False
    return True


def compared(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Add the number of connections counted by hand, and how it compares with the number found."""
    counted = TRUTH.get(name)
    if counted is None or "connections" not in row:
        return row
    least, most = counted["connections"], counted["connections"] + counted.get("optional", 0)
    found = row["connections"]
    verdict = "fewer" if found < least else "more" if found > most else "same"
    return row | {"by_hand": least, "optional": most - least, "compared": verdict}


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def networks(only: str) -> Iterator[tuple[str, str, Build]]:
    """Yield package, name and builder of the networks whose packages are installed."""
    for package, models in PACKAGES.items():
        try:
            builders = models()
        except ImportError as problem:
            print(f"{package}: not installed ({problem})", file=sys.stderr)
            continue
        yield from ((package, name, build) for name, build in builders.items() if re.search(only, f"{package}/{name}"))


def main(only: str, out: Path) -> None:
    """Measure; the rows of networks that are not selected stay in the file."""
    stamp = {"command": "python benchmarks/convert_zoo.py", "hardware": f"CPU, {platform.machine()}"}
    stamp["date"] = dt.date.today().isoformat()
    versions = {"python": platform.python_version(), "torch": torch.__version__, "lresnet": lresnet.__version__}
    out.parent.mkdir(exist_ok=True)
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    rows = {(row["package"], row["name"]): row for row in map(json.loads, lines)}
    for package, name, build in networks(only):
        began = time.perf_counter()
        row = compared(f"{package}/{name}", measure(build))
        distribution = name.split()[0] if package == "others" else package
        mine = {"package": package, "name": name, "versions": versions | {distribution: version(distribution)}}
        row["seconds"] = round(time.perf_counter() - began, 1)
        rows[package, name] = {"table": "conversion", **mine, **row, **stamp}
        out.write_text("".join(json.dumps(one) + "\n" for one in rows.values()), encoding="utf-8")
        what = row.get("failures") or row.get("reason", "")
        print(f"{package}/{name}: {row['status']} {row.get('connections', '')} {what}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression for the names, e.g. timm/res")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results (results/conversion.jsonl)")
    parser.add_argument("--render", action="store_true", help="render the page only")
    options = parser.parse_args()
    if not options.render:
        warnings.simplefilter("ignore")
        main(options.only, options.out)
    if options.out == RESULTS:
        PAGE.write_text(conversion_page(read_conversions(RESULTS.parent), read_hand_counts(ROOT / "benchmarks")))
