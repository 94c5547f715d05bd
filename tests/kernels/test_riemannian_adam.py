"""The kernel of the Riemannian Adam step against torch operations; interpreted on machines without a GPU."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor

from lresnet.kernels import disabled, enabled
from lresnet.optim import RiemannianAdam, riemannian

kernel = pytest.importorskip("lresnet.kernels.riemannian_adam", reason="triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 20 if torch.cuda.is_available() else 10  # the interpreter needs a tenth of a second for each


def normals(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).float().to(DEVICE)


def descend(
    start: Tensor, kappa: float | Tensor, dtype: torch.dtype = torch.float32, steps: int = STEPS
) -> list[Tensor]:
    """Return points and moments after some steps on given gradients."""
    x = start.to(dtype).clone().requires_grad_()
    optimizer = RiemannianAdam([x], lambda: -kappa, lr=torch.tensor(0.05, device=DEVICE))
    for step in range(steps):
        x.grad = normals(*start.shape, seed=step).to(dtype)
        optimizer.step()
    state = optimizer.state[x]
    return [x.detach(), state["mean"], state["square"], state["step"]]


@pytest.fixture
def refuse_torch(monkeypatch):
    monkeypatch.setattr(riemannian, "_step", None)


def cases():
    """Yield all cases; most cases of long rows near the origin are slow in the interpreter."""
    for shape, length, kappa in itertools.product([(25, 3), (2, 6, 64)], [0.0, 1e-3, 1.0, 30.0], [0.1, 1.0, 10.0]):
        quick = torch.cuda.is_available() or shape == (25, 3) or length == 30.0 or kappa == 1.0
        yield pytest.param(shape, length, kappa, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("shape", "length", "kappa"), list(cases()))
def test_same_numbers_as_torch_operations(shape, length, kappa, monkeypatch):
    """Compare with float64, relative to the error of torch operations in float32.

    The mean over the points is compared: far from the origin the largest error varies by a factor of ten.
    """
    start = normals(*shape, seed=99) * length / (kappa * shape[-1]) ** 0.5
    with disabled():
        others = descend(start, kappa)
    exact = descend(start, kappa, torch.float64)
    with enabled(), monkeypatch.context() as without:
        without.setattr(riemannian, "_step", None)
        found = descend(start, kappa)
    for got, other, expected in zip(found, others, exact, strict=True):
        assert got.shape == expected.shape
        scale = expected.abs().max()
        error, theirs = ((t.double() - expected).abs().amax(-1).mean() / scale for t in (got, other))
        assert error <= 2 * theirs + 2e-6
    assert torch.equal(found[3], torch.full_like(found[3], STEPS))
    assert (found[0] - start).norm() > 0.1


def test_a_nan_stays_in_its_point(refuse_torch):
    start = normals(6, 4)
    start[2, 1] = float("nan")
    with enabled():
        x, mean, square, _ = descend(start, 1.0, steps=2)
    for t in (x, mean, square):
        assert t[2].isnan().all()
        assert torch.cat([t[:2], t[3:]]).isfinite().all()


def test_runs_are_bit_identical(refuse_torch):
    with enabled():
        first, second = (descend(normals(5, 70, seed=99), 1.0, steps=3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_zero_gradients_do_not_move_the_points(refuse_torch):
    start = normals(5, 4)
    x = start.clone().requires_grad_()
    optimizer = RiemannianAdam([x], lambda: -1.0, lr=0.1)
    x.grad = torch.zeros_like(x)
    with enabled():
        optimizer.step()
    assert torch.equal(x.detach(), start)


@pytest.mark.parametrize("counter", ["of each point", "one number"])
def test_resumes_from_a_saved_state(counter, refuse_torch):
    x, g = normals(5, 4).requires_grad_(), normals(5, 4, seed=1)
    first = RiemannianAdam([x], lambda: -1.0, lr=0.1)
    x.grad = g
    with enabled():
        first.step()
        y, state = x.detach().clone().requires_grad_(), copy.deepcopy(first.state_dict())
        if counter == "one number":  # as earlier versions saved it
            state["state"][0]["step"] = torch.tensor(1.0, dtype=torch.float64)
        second = RiemannianAdam([y], lambda: -1.0, lr=0.1)
        second.load_state_dict(state)
        y.grad = g
        first.step()
        second.step()
    assert torch.equal(x, y)
    assert second.state[y]["step"].tolist() == [[2.0]] * 5


@pytest.mark.parametrize("case", ["learned curvature", "float64", "not contiguous"])
def test_unsupported_points_use_torch_operations(case, monkeypatch):
    monkeypatch.setattr(kernel, "fused_step", None)
    start = normals(5, 3).double() if case == "float64" else normals(5, 3)
    x = start.clone()
    x = (x.mT.contiguous().mT if case == "not contiguous" else x).requires_grad_()
    kappa = torch.tensor(1.0, device=DEVICE) if case == "learned curvature" else 1.0
    optimizer = RiemannianAdam([x], lambda: -kappa, lr=0.1)
    x.grad = torch.ones_like(x)
    with enabled():
        optimizer.step()
    assert (x.detach() - start).norm() > 0.1
