"""Two processes train own blocks and a model with FSDP2 (``fully_shard``) or DDP: the steps of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import lresnet
from lresnet.models import LorentzResNet
from lresnet.train.distributed import ONE_PROCESS, Processes, join_processes
from tests.processes import run_in_two_processes

STEPS = 5


class Block(nn.Module):
    def __init__(self, manifold: lresnet.Lorentz) -> None:
        super().__init__()
        self.linear, self.residual = nn.Linear(6, 6), lresnet.LorentzResidual(manifold, scale="learned")

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x, self.linear(x).relu())


class Network(nn.Module):
    """Blocks that share a curvature, which belongs to the network or, as ``lorentzify`` does it, to the first block."""

    def __init__(self, learnable: bool, owner: str, head: type[nn.Module] = lresnet.nn.LorentzMLR) -> None:
        super().__init__()
        torch.manual_seed(0)
        manifold = lresnet.Lorentz(-0.5, learnable=learnable)
        self.blocks = nn.Sequential(*(Block(manifold) for _ in range(3)))
        self.head = head(6, 3, manifold=manifold)
        (self if owner == "network" else self.blocks[0]).manifold = manifold

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


def resnet() -> LorentzResNet:
    """A ResNet whose batch norms use their running statistics, so that no image depends on another."""
    torch.manual_seed(0)
    model = LorentzResNet(8, 3, widths=(4, 6, 8), learn_curvature=True, head="mlr").eval()
    return model.to(memory_format=torch.contiguous_format)  # FSDP2 supports no channels_last parameters


def build(kind: str) -> nn.Module:
    options = {"fixed": (False, "network"), "points": (True, "network", lresnet.nn.Prototypes)}
    return resnet() if kind == "resnet" else Network(*options.get(kind, (True, kind)))


def inputs(kind: str) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    shape = (8, 3, 8, 8) if kind == "resnet" else (8, 6)
    return torch.randn(shape, generator=g), torch.randint(3, (8,), generator=g)


def train(net: nn.Module, kind: str, processes: Processes) -> None:
    optimizer = lresnet.optim.make_adam(net, lr=0.05, weight_decay=0.1)
    rows = processes.share(8, images=8)
    x, y = inputs(kind)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        if kind == "points" and not isinstance(net, DistributedDataParallel):  # FSDP2 ignores these parameters
            processes.average_([net.head.points.grad])
        optimizer.step()


def arrays(net: nn.Module) -> dict[str, np.ndarray]:
    state = net.state_dict()
    return {k: (v.full_tensor() if hasattr(v, "full_tensor") else v).detach().numpy() for k, v in state.items()}


def _sharded(kinds: tuple[str, ...]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    found = {}
    with join_processes("cpu") as (processes, _):
        for kind in kinds:
            for by_block in (False, True):
                net = build(kind)
                for block in net.blocks if by_block else ():
                    fully_shard(block)
                fully_shard(net, ignored_params={net.head.points} if kind == "points" else None)
                shown = repr(net) if processes.is_main else ""  # does not wait for the other process
                train(net, kind, processes)
                found[f"{kind}, by block: {by_block}"] = arrays(net)
                state = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
                if processes.is_main:
                    build(kind).load_state_dict(state)  # a whole state dict for one process
                    assert "curvature=?" in shown or kind == "fixed"
                set_model_state_dict(net, net.state_dict())
            net = build(kind)
            train(DistributedDataParallel(net), kind, processes)
            found[f"{kind}, DDP"] = arrays(net)
        points = fully_shard(lresnet.nn.Prototypes(6, 3, manifold=lresnet.Lorentz(-1.0)))
        with pytest.raises(ValueError, match="points of a manifold, which FSDP2 cannot shard: use another head"):
            lresnet.optim.parameter_groups(nn.Sequential(points))
    return found


@pytest.mark.slow
def test_sharded_and_replicated_parameters_take_the_steps_of_one_process():
    kinds = ("fixed", "network", "block", "points", "resnet")
    first, second = run_in_two_processes(_sharded, kinds)
    for case, found in first.items():
        kind = case.partition(",")[0]
        net = build(kind)
        before = arrays(net)
        before = {name: values.copy() for name, values in before.items()}
        train(net, kind, ONE_PROCESS)
        expected = arrays(net)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-5, err_msg=f"{case}: {name}")
            np.testing.assert_array_equal(second[case][name], found[name])
            trained = not name.endswith(("_extra_state", "running_mean", "running_var", "num_batches_tracked"))
            assert trained == bool((values != before[name]).any()) or name.endswith("log_scale"), name
