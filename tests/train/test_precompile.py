"""Precompiling: a step on fake tensors requests the kernels of a real step and changes nothing."""

from __future__ import annotations

import copy

import pytest
import torch

from lresnet.data import ImageData, ImageSet, ImageTask, text_task
from lresnet.models import LorentzResNet, create_model
from lresnet.train import Augment, ImageClassification, TrainConfig, engine
from lresnet.train.image_classification import precompile
from lresnet.train.text_modelling import TextModelling

# Kernels run on a GPU; without one, tests/conftest.py selects the interpreter.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def objective(**options) -> ImageClassification:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (12, 8, 8, 3), dtype=torch.uint8, generator=generator)
    images = ImageSet(pixels, torch.arange(12) % 4)
    data = ImageData("random", images, images, tuple("abcd"), (0.5,) * 3, (0.25,) * 3)
    return ImageClassification(ImageTask("random", data), **options)


def network() -> LorentzResNet:
    torch.manual_seed(0)
    return LorentzResNet(8, 4, widths=[4, 4, 8], learn_curvature=True)


@pytest.mark.parametrize("flip_test", [False, True])
def test_model_and_random_state_do_not_change(flip_test):
    net, task = network().eval(), objective(batch_size=4, augment=Augment(flip_test=flip_test))
    before, state = copy.deepcopy(net.state_dict()), task.state_dict()["generator"]
    drawn = torch.get_rng_state()
    task.precompile(net)
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    assert not net.training
    assert all(type(parameter) is torch.nn.Parameter and parameter.grad is None for parameter in net.parameters())
    assert torch.equal(task.state_dict()["generator"], state)
    assert torch.equal(torch.get_rng_state(), drawn)


def test_it_requests_the_kernels_of_a_step_and_of_a_validation_pass(monkeypatch):
    """On a GPU; without one, in Triton's interpreter on the CPU, which a machine with a GPU does not use."""
    pytest.importorskip("triton")
    from lresnet.kernels import batch_norm, enabled, norm_relu, residual, runtime

    requested = set()
    monkeypatch.setattr(runtime, "_is_concrete", lambda x: True)
    monkeypatch.setattr(runtime, "_request", lambda kernel, *_: requested.add(kernel))
    real = set()
    for module in (residual, batch_norm, norm_relu):
        monkeypatch.setattr(module, "launch", _recording(module.launch, real))
    net, task = network().to(DEVICE), objective(batch_size=4, device=DEVICE)
    with enabled():
        task.precompile(net)
        precompiled = set(requested)
        real.clear()
        task.start_epoch()
        task.advance(0)
        task.loss(net.train()).backward()
        with torch.no_grad():
            task.test(net.eval())
    assert real <= precompiled
    assert len(real) > 8


def _recording(start, real):
    def recorded(kernel, *arguments, **options):
        real.add(kernel)
        return start(kernel, *arguments, **options)

    return recorded


def test_a_model_that_reads_values_is_skipped(caplog):
    class Reads(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * float(x.sum())

    model = Reads(3, 2)
    with caplog.at_level("DEBUG", "lresnet.train.image_classification"):
        precompile(model, lambda call: call(torch.ones(4, 3)).sum())
    assert "not compiled ahead" in caplog.text
    assert model.weight.grad is None
    assert torch.isfinite(model(torch.ones(4, 3))).all()


def test_errors_are_left_to_the_first_step():
    precompile(torch.nn.Linear(3, 2), lambda call: call(torch.ones(4, 5)).sum())


@pytest.mark.parametrize(
    ("execution", "epochs", "compiled"),
    [("fast", 5, False), ("fast", 20_000, True), ("compiled", 5, True), ("eager", 20_000, False)],
)
def test_which_runs_are_compiled(execution, epochs, compiled, monkeypatch):
    calls = []
    monkeypatch.setattr(engine, "_compiled", lambda model: calls.append(model) or copy.copy(model))
    monkeypatch.setattr(engine, "CapturedStep", lambda step, generators: step)

    class OnGpu(torch.nn.Parameter):
        device = torch.device("cuda")

    monkeypatch.setattr(engine, "NonFiniteCheck", lambda device: None)
    net, task = network(), objective(batch_size=4)
    config = TrainConfig(epochs=epochs, optimizer="sgd")
    optimizers = engine._make_optimizers(net, config)
    monkeypatch.setattr(engine, "_make_optimizers", lambda *_: optimizers)
    monkeypatch.setattr(net, "parameters", lambda: iter([OnGpu(torch.zeros(1))]))
    precompiled = []
    monkeypatch.setattr(task, "precompile", precompiled.append)
    engine.TrainingState(net, task, config, execution).precompile()
    assert bool(calls) == compiled
    assert precompiled == ([] if compiled else [net])


def test_a_transformer_compiles_its_blocks_while_it_trains():
    model = create_model("lorentz_gpt", vocab_size=256, context=4, layers=1, width=16, heads=2)
    assert engine._compiled(model) is model
    assert model.compiles_blocks
    engine.TrainingState(model, TextModelling(text_task(b"abcdefg" * 20, context=4)), TrainConfig(epochs=1)).outcome()
    assert not model.compiles_blocks
