"""Hugging Face's ``Trainer`` with our parameter groups: no weight decay of curvature, residual weights and scales."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import lresnet

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

GEOMETRIC = {"manifold.log_kappa", "residual.raw_weight", "residual.log_scale"}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.manifold = lresnet.Lorentz(-0.5, learnable=True)
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.residual = lresnet.LorentzResidual(self.manifold, scale="learned", initial_scale=2.0)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(self.residual(x, self.layer(x)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer(net: nn.Module, folder: str, *, steps: int = 4, own_groups: bool = True):
    arguments = transformers.TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=4, save_steps=4, weight_decay=0.5, learning_rate=0.01,
        lr_scheduler_type="constant", report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    g = torch.Generator().manual_seed(0)
    data = [{"x": torch.randn(4, generator=g), "labels": i % 3} for i in range(16)]
    optimizer = lresnet.optim.make_adam(net, lr=0.01, weight_decay=0.5) if own_groups else None
    return transformers.Trainer(net, arguments, train_dataset=data, optimizers=(optimizer, None))


def decayed(optimizer: torch.optim.Optimizer, net: nn.Module) -> set[str]:
    names = {parameter: name for name, parameter in net.named_parameters()}
    return {names[p] for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}


def test_our_optimiser_does_not_decay_numbers_of_the_geometry(tmp_path):
    net = Network()
    ours = trainer(net, str(tmp_path))
    ours.train()
    assert decayed(ours.optimizer, net) == {"layer.weight", "head.weight"}
    assert ours.state.global_step == 4
    assert net.manifold.K.item() != -0.5
    without = trainer(net, str(tmp_path), own_groups=False)
    without.create_optimizer()
    assert decayed(without.optimizer, net) >= GEOMETRIC  # what the page warns of


def test_a_run_resumes_from_its_checkpoint(tmp_path):
    whole, first, second = Network(), Network(), Network()
    trainer(whole, str(tmp_path / "whole"), steps=8).train()
    trainer(first, str(tmp_path / "parts"), steps=4).train()
    trainer(second, str(tmp_path / "parts"), steps=8).train(resume_from_checkpoint=True)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], tensor, msg=name)
