"""Non-finite numbers in training: the error names the step and the module."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.data import disease_tree, load_task
from lresnet.models import LorentzGCN, LorentzResNet
from lresnet.train import (
    ImageClassification,
    LinkPrediction,
    NodeClassification,
    NonFiniteError,
    TrainConfig,
    train_model,
)
from lresnet.train.non_finite import NonFiniteCheck, describe_non_finite
from tests.coloured import coloured_task
from tests.train.toy import Line, network


class Faulty(torch.nn.Module):
    """The identity; from training step ``at`` on, multiplication by ``value``."""

    def __init__(self, at: int, value: float = float("nan")) -> None:
        super().__init__()
        self.at, self.value, self.step = at, value, -1

    def forward(self, x: Tensor) -> Tensor:
        self.step += self.training
        return x * self.value if self.step >= self.at else x


class BadGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:
        return g * float("nan")


def test_a_loss_that_stays_finite_is_not_reported():
    check = NonFiniteCheck(torch.device("cpu"))
    for _ in range(3):
        check.record(torch.tensor(1e30))
    check.raise_if_found(network(), lambda: None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_the_first_non_finite_step_is_reported(bad):
    check = NonFiniteCheck(torch.device("cpu"))
    for loss in [1.0, bad, 2.0, bad]:
        check.record(torch.tensor(loss))
    with pytest.raises(NonFiniteError, match="the loss stopped being finite at step 1: "):
        check.raise_if_found(network(), lambda: None)


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_training_names_the_module_and_the_step(at, value):
    """Also if the fault occurs in training only, long before the next validation pass."""
    model = network()
    model.insert(2, Faulty(at, value))
    objective = Line()
    with pytest.raises(NonFiniteError) as error:
        train_model(model, objective, TrainConfig(epochs=50, eval_every=20))
    message = str(error.value)
    assert f"the loss stopped being finite at step {at}: " in message
    assert "the output of module '2' (Faulty) is not finite" in message
    assert "Lower the learning rate" in message
    assert all(parameter.isfinite().all() for parameter in model.parameters())  # no step on the bad loss


def test_a_module_in_the_middle_of_a_graph_model_is_named():
    task = load_task("disease_tree/nc", graph=disease_tree(nodes=60))
    torch.manual_seed(0)
    model = LorentzGCN(task.x.shape[1], 4, num_layers=3, num_classes=2)
    layer = model.layers[1]
    steps = iter(range(100))
    layer.register_forward_hook(lambda module, args, output: output / 0.0 if next(steps) >= 3 else None)
    with pytest.raises(NonFiniteError, match=r"step 3: the output of module 'layers\.1' \(LorentzGraphConv\)"):
        train_model(model, NodeClassification(task), TrainConfig(epochs=20, eval_every=20))


def test_a_gradient_that_is_not_finite_names_the_parameter():
    model = network()
    model[3].register_forward_pre_hook(lambda module, args: (BadGradient.apply(args[0]),))
    with pytest.raises(NonFiniteError, match=r"step 1: parameter '0\.weight' is not finite"):
        train_model(model, Line(), TrainConfig(epochs=20, eval_every=5))


def test_a_bad_update_just_before_a_validation_pass_is_found_before_it():
    model = network()
    model[3].register_forward_pre_hook(lambda module, args: (BadGradient.apply(args[0]),))
    objective = Line()
    with pytest.raises(NonFiniteError, match=r"parameter '0\.weight' is not finite at step 0"):
        train_model(model, objective, TrainConfig(epochs=20, eval_every=1))
    assert objective.passes == []


@pytest.mark.parametrize("kind", ["lp", "nc"])
def test_graph_tasks_that_diverge_raise(kind):
    task = load_task(f"disease_tree/{kind}", graph=disease_tree(nodes=60))
    objective = LinkPrediction(task) if kind == "lp" else NodeClassification(task)
    torch.manual_seed(0)
    model = LorentzGCN(task.x.shape[1], 4, num_classes=None if kind == "lp" else 2)
    with pytest.raises(NonFiniteError, match=r"finite at step \d"):
        train_model(model, objective, TrainConfig(epochs=30, lr=1e38, eval_every=5))


def test_a_learned_curvature_that_turns_nan_is_named():
    """The range check of the curvature fails first."""
    task = load_task("disease_tree/nc", graph=disease_tree(nodes=60))
    model = LorentzGCN(task.x.shape[1], 4, num_classes=2, learn_curvature=True)
    model.manifold.log_kappa.register_hook(lambda g: g * float("nan"))
    with pytest.raises(NonFiniteError, match=r"parameter 'manifold\.log_kappa' is not finite at step 0"):
        train_model(model, NodeClassification(task), TrainConfig(epochs=30, eval_every=10))


def test_a_value_that_leaves_its_range_during_training_is_reported_as_divergence():
    """exp of a finite parameter is 0 or infinite: the range check fails, but the call was not wrong."""
    model = LorentzResNet(8, num_classes=3, residual_options={"scale": "learned"})
    model.blocks[0].residual.log_scale.register_hook(lambda g: torch.full_like(g, 1e6))
    with pytest.raises(NonFiniteError, match=r"diverged at step 1: scale must be .* got 0; .*Lower the learning rate"):
        train_model(
            model, ImageClassification(coloured_task(), batch_size=20), TrainConfig(epochs=2, lr=1.0, optimizer="sgd")
        )


def test_a_network_that_is_not_finite_in_eval_mode_has_diverged():
    """Running variances of batch norms may overflow where those of a batch do not."""
    model = LorentzResNet(8, num_classes=3)
    model.stem[1].register_forward_hook(lambda module, _, output: output * (1.0 if module.training else float("nan")))
    objective = ImageClassification(coloured_task(0.2), batch_size=20)
    with pytest.raises(NonFiniteError, match=r"diverged at step \d: the logits of row 0 contain NaN\. Lower"):
        train_model(model, objective, TrainConfig(epochs=1))


def test_steps_are_counted_over_epochs_of_several_steps():
    model = LorentzResNet(8, num_classes=3)
    calls = iter(range(1000))
    model.head.bias.register_hook(lambda g: g * (float("nan") if next(calls) == 5 else 1.0))
    with pytest.raises(NonFiniteError, match=r"parameter 'head\.bias' is not finite at step 5"):
        train_model(model, ImageClassification(coloured_task(), batch_size=20), TrainConfig(epochs=2, eval_every=1))


def test_other_errors_of_the_objective_are_not_changed():
    class Refuses(Line):
        def loss(self, model: torch.nn.Module) -> Tensor:
            raise ValueError("no such data")

    with pytest.raises(ValueError, match="no such data"):
        train_model(network(), Refuses(), TrainConfig(epochs=3))


def test_the_loss_function_is_named_if_everything_else_is_finite():
    message = describe_non_finite(network(), lambda: None)
    assert message == "all parameters and module outputs are finite, so the loss function itself is not"


def test_the_description_leaves_no_hooks():
    model = network()
    describe_non_finite(model, lambda: model(torch.full((1, 2), float("nan"))))
    assert not any(module._forward_hooks for module in model.modules())
