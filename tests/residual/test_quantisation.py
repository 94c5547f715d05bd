"""PT2E quantisation (torchao) of an exported network with Lorentz residuals."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import lresnet

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of torchao

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    quantize_pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")


class Block(nn.Module):
    def __init__(self, manifold: lresnet.Lorentz) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.residual = lresnet.LorentzResidual(manifold, scale=2.0, dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x, self.conv(x).relu())


class Network(nn.Module):
    def __init__(self, learnable: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.manifold = lresnet.Lorentz(-0.05, learnable=learnable)
        self.blocks = nn.Sequential(*(Block(self.manifold) for _ in range(3)))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


@pytest.mark.parametrize("everything", [False, True], ids=["convolutions and linear layers", "everything"])
@pytest.mark.parametrize("learnable", [False, True])
def test_an_eight_bit_network_agrees_to_one_percent(learnable, everything):
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    net, x = Network(learnable).eval(), torch.randn(8, 6, 10, 10, generator=torch.Generator().manual_seed(0))
    config = x86.get_default_x86_inductor_quantization_config()
    quantizer = x86.X86InductorQuantizer()
    if everything:
        quantizer.set_global(config)
    else:
        quantizer.set_module_type_qconfig(nn.Conv2d, config).set_module_type_qconfig(nn.Linear, config)
    prepared = quantize_pt2e.prepare_pt2e(torch.export.export(net, (x,)).module(), quantizer)
    prepared(x)
    quantised = quantize_pt2e.convert_pt2e(prepared)
    expected = net(x)
    assert (quantised(x) - expected).norm() < 0.01 * expected.norm()
    assert any("quantize_per_tensor" in str(node.target) for node in quantised.graph.nodes)


@pytest.mark.parametrize("learnable", [False, True])
def test_a_traced_network_can_be_quantised(learnable):
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    net, x = Network(learnable).eval(), torch.randn(8, 6, 10, 10)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_module_type_qconfig(nn.Conv2d, x86.get_default_x86_inductor_quantization_config())
    exported = torch.export.export(torch.fx.symbolic_trace(net), (x,)).module()
    prepared = quantize_pt2e.prepare_pt2e(exported, quantizer)
    prepared(x)
    found, expected = quantize_pt2e.convert_pt2e(prepared)(x), net(x)
    assert (found - expected).norm() < 0.02 * expected.norm()
