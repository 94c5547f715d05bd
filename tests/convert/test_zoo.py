"""Networks of other packages: the sums found are those counted by hand, and the converted network computes the same.

The networks are those of benchmarks/convert_zoo.py. torch and torch_geometric are always installed. Networks of other
packages are skipped if these are not.
"""

from __future__ import annotations

import copy
import math
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import lresnet

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from conversion_models import PACKAGES, TIMM, Built  # noqa: E402

COUNTS = tomllib.loads((BENCHMARKS / "conversion_truth.toml").read_text(encoding="utf-8"))
INSTALLED = [
    "torch/TransformerEncoder (pre-norm)",
    "torch/TransformerEncoder (post-norm)",
    "torch/TransformerDecoder",
    "torch/Transformer",
    "torch_geometric/DeepGCNLayer (res+)",
    "torch_geometric/DeepGCNLayer (res)",
    "torch_geometric/DeepGCNLayer (plain)",
    "torch_geometric/GCN2Conv",
    "torch_geometric/GPSConv",
    "torch_geometric/GCN",
    "torch_geometric/GraphSAGE",
    "torch_geometric/GIN",
    "torch_geometric/GAT (residual)",
    "torch_geometric/TransformerConv",
    "torch_geometric/ResGatedGraphConv",
    "torch_geometric/GraphUNet",
    "torch_geometric/SchNet",
    "torch_geometric/SGFormer",
]
TOO_MANY = {
    "timm/nasnet: nasnetalarge": "a pool of stride 2 counts as a shortcut",
    "timm/pnasnet: pnasnet5large": "a pool of stride 2 counts as a shortcut",
    "timm/volo: volo_d1_224": "the logits of a linear head count as a shortcut",
    "monai/AttentionUnet": "a gate with a convolution on both sides",
}
"""Networks in which more sums are converted than were counted by hand, and why."""
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the packages, and of sums that are left
OTHERS = [
    pytest.param(name, marks=pytest.mark.xfail(reason=TOO_MANY[name], strict=True) if name in TOO_MANY else ())
    for name in COUNTS
    if name not in INSTALLED
]


def built(name: str) -> Built:
    package, network = name.split("/", 1)
    pytest.importorskip(network.split()[0] if package == "others" else package)
    torch.manual_seed(0)
    net, args, kwargs = PACKAGES[package]()[network]()
    return net.eval(), args, kwargs


def found_in(net: torch.nn.Module, args: tuple, kwargs: dict) -> lresnet.convert.Plan:
    return lresnet.find_sums(net, *copy.deepcopy(args), **copy.deepcopy(kwargs))


def connections(plan: lresnet.convert.Plan) -> int:
    """Number of residual connections in a forward pass, those with a norm behind them included."""
    return sum(one.calls for one in plan.sums if (one.converted and one.axis is not None) or one.is_post_norm)


def output(net: torch.nn.Module, args: tuple, kwargs: dict) -> torch.Tensor:
    torch.manual_seed(1)
    with torch.no_grad():
        result = net(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    return result[0] if isinstance(result, tuple) else result


def test_hand_counts_name_networks_that_exist() -> None:
    for name in COUNTS:
        package, network = name.split("/", 1)
        assert package in PACKAGES, name
        if package in ("torch", "torch_geometric"):
            assert network in PACKAGES[package]()
            assert name in INSTALLED
        if package == "timm":
            family, variant = network.split(": ")
            assert TIMM[family][0] == variant


def test_at_least_25_networks_are_counted_by_hand() -> None:
    assert len(COUNTS) >= 25
    assert all(count["connections"] >= 0 and count["why"] for count in COUNTS.values())


@pytest.mark.parametrize("name", [name for name in COUNTS if name in INSTALLED])
def test_the_connections_found_are_those_counted_by_hand(name: str) -> None:
    count = COUNTS[name]
    plan = found_in(*built(name))
    assert count["connections"] <= connections(plan) <= count["connections"] + count.get("optional", 0), str(plan)


@pytest.mark.parametrize("name", INSTALLED)
def test_plain_sums_give_the_same_bits_and_curvature_an_error_in_proportion(name: str) -> None:
    net, args, kwargs = built(name)
    plan = found_in(net, args, kwargs)
    if connections(plan):
        flat = lresnet.lorentzify(net, plan=plan, residual="space", curvature=-1e-6)
        torch.testing.assert_close(output(flat, args, kwargs), output(net, args, kwargs), rtol=0, atol=0)
    if not any(one.converted for one in plan.sums):
        with pytest.raises(ValueError, match=r"no sum|followed by a layer norm"):
            lresnet.lorentzify(net, plan=plan)
        return
    exact, wide = net.double(), tuple(one.double() if one.is_floating_point() else one for one in args)
    try:
        expected = output(exact, wide, kwargs)
    except RuntimeError:
        pytest.skip("its code fixes float32")
    errors = []
    for K in (-1e-6, -1e-7):
        curved = lresnet.lorentzify(exact, plan=plan, curvature=K)
        errors.append(float((output(curved, wide, kwargs) - expected).abs().max()))
    assert math.log10(errors[0] / errors[1]) == pytest.approx(1, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_networks_of_other_packages(name: str) -> None:
    net, args, kwargs = built(name)
    count, plan = COUNTS[name], found_in(net, args, kwargs)
    missing = count["connections"] - connections(plan)
    assert missing <= sum(not one.converted and bool(one.reason) for one in plan.sums), str(plan)
    assert connections(plan) <= count["connections"] + count.get("optional", 0), str(plan)
    if connections(plan):
        lresnet.lorentzify(net, plan=plan, residual="space", curvature=-1e-6)  # compares the outputs bit by bit
