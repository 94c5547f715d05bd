"""Modules refer to a manifold that the model owns."""

import copy

import geoopt
import pytest
import torch

from lresnet import Lorentz
from lresnet.geometry import ManifoldModule


def test_the_manifold_is_referred_to_and_not_registered():
    M = Lorentz(-0.5, learnable=True)
    module = ManifoldModule(M)
    assert module.manifold is M
    assert list(module.parameters()) == []
    assert list(module.state_dict()) == []
    assert "curvature=-0.5" in repr(module)


def test_one_owner_in_a_model():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.manifold = Lorentz(-0.5, learnable=True)
            self.layers = torch.nn.ModuleList(ManifoldModule(self.manifold) for _ in range(3))

    model = Model()
    assert list(model.state_dict()) == ["manifold.log_kappa"]
    twin = copy.deepcopy(model)
    assert twin.manifold is not model.manifold
    assert all(layer.manifold is twin.manifold for layer in twin.layers)


@pytest.mark.parametrize("wrong", [geoopt.Lorentz(), -1.0, None, Lorentz])
def test_only_our_manifold(wrong):
    with pytest.raises(TypeError, match=r"manifold must be an lresnet.Lorentz, got .*Lorentz.from_geoopt\(k\)"):
        ManifoldModule(wrong)
