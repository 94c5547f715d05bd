"""Number of kernels that a training step of lorentz_sgformer launches, which decides its time on a small graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lresnet.kernels import disabled, enabled
from lresnet.models import LorentzSGFormer
from lresnet.optim import Optimizers, RiemannianAdam, parameter_groups

join = pytest.importorskip("lresnet.kernels.join", reason="triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NODES, FEATURES, CLASSES = 40, 8, 4
# Operators that launch no kernel: they allocate memory, create views or compute on the host.
_IDLE = ("empty", "detach", "promote_types", "record_function")


class Launches(TorchDispatchMode):
    """Count torch's operators except views, and our kernels, without the operators of their interpreter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.inside = False
        kind = type(join._forward)
        run = kind.run

        def counted(kernel: Any, *arguments: Any, **options: Any) -> Any:
            self.counts[kernel.__name__] += 1
            self.inside = True
            try:
                return run(kernel, *arguments, **options)
            finally:
                self.inside = False

        monkeypatch.setattr(kind, "run", counted)

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in operator._schema.returns)
        if not self.inside and not views and not any(word in str(operator) for word in _IDLE):
            self.counts[str(operator)] += 1
        return operator(*args, **(kwargs or {}))


def training_step(residual: str, **options: Any) -> Callable[[], None]:
    torch.manual_seed(0)
    model = LorentzSGFormer(FEATURES, 16, num_classes=CLASSES, residual=residual, **options).to(DEVICE)
    points = list(parameter_groups(model).manifold.values())
    others = [p for p in model.parameters() if all(p is not point for point in points)]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, fused=True)]
    if points:
        optimizers.append(RiemannianAdam(points, lambda: model.manifold.curvature, torch.tensor(0.01, device=DEVICE)))
    both, y = Optimizers(optimizers), torch.randint(CLASSES, (NODES,)).to(DEVICE)
    x = model.input_points(torch.randn(NODES, FEATURES).to(DEVICE))
    graph = model.graph(torch.randint(NODES, (2, 100)).to(DEVICE), NODES)

    def step() -> None:
        both.zero_grad()
        torch.nn.functional.cross_entropy(model(x, graph), y).backward()
        both.step()

    return step


def launches(step: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> int:
    step()  # optimisers create their state
    with monkeypatch.context() as patch, Launches(patch) as found:
        step()
    return found.counts.total()


@pytest.mark.parametrize("options", [{}, {"learn_graph_weight": True}])
def test_with_kernels_a_step_launches_at_most_five_more_than_the_euclidean_baseline(options, monkeypatch):
    lorentz, baseline = (training_step(residual, **options) for residual in ("lorentz", "euclidean"))
    with enabled():
        assert launches(lorentz, monkeypatch) <= launches(baseline, monkeypatch) + 5


def test_without_kernels_a_step_launches_hundreds_more(monkeypatch):
    lorentz, baseline = (training_step(residual) for residual in ("lorentz", "euclidean"))
    with disabled():
        assert launches(lorentz, monkeypatch) > launches(baseline, monkeypatch) + 200
