"""Image-text contrastive loss: against its definition, the clamp of the scale, the shape of its parameter."""

import math

import pytest
import torch

from lresnet import Lorentz
from lresnet.nn import ImageTextContrastiveLoss, image_text_contrastive_loss


@pytest.mark.parametrize("K", [-0.5, None])
def test_loss_agrees_with_its_definition(K):
    x, y = torch.randn(2, 5, 3, dtype=torch.float64)
    M = Lorentz(-0.5)
    d = torch.stack([torch.stack([(a - b).norm() if K is None else M.dist(a, b) for b in y]) for a in x])
    s = -2.5 * d
    expected = -(s.log_softmax(1).diagonal() + s.log_softmax(0).diagonal()).mean() / 2
    torch.testing.assert_close(image_text_contrastive_loss(x, y, K=K, scale=2.5), expected)


def test_scale_is_one_element_and_clamped_at_one_hundred():
    loss = ImageTextContrastiveLoss(Lorentz(-1.0))
    assert loss.log_scale.shape == (1,)
    assert float(loss.scale.detach()) == pytest.approx(1 / 0.07)
    with torch.no_grad():
        loss.log_scale.fill_(10.0)
    assert float(loss.scale.detach()) == pytest.approx(100.0)
    loss(torch.randn(4, 3), torch.randn(4, 3)).backward()
    assert float(loss.log_scale.grad) == 0


def test_loss_trains_points_curvature_and_scale():
    M = Lorentz(-1.0, learnable=True)
    loss = ImageTextContrastiveLoss(M)
    x, y = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(x, y)
    assert value.dtype == torch.float32
    value.backward()
    for gradient in (x.grad, y.grad, M.log_kappa.grad, loss.log_scale.grad):
        assert gradient.isfinite().all()
        assert (gradient != 0).any()


def test_equal_pairs_have_finite_gradients_and_a_lower_loss():
    x = torch.randn(4, 3, requires_grad=True)
    loss = image_text_contrastive_loss(x, x)
    loss.backward()
    assert x.grad.isfinite().all()
    assert loss < image_text_contrastive_loss(x, x.roll(1, 0))


def test_wrong_arguments_are_reported():
    with pytest.raises(ValueError, match="must both be"):
        image_text_contrastive_loss(torch.randn(4, 3), torch.randn(5, 3))
    for temperature in (0.001, math.inf, -1.0):
        with pytest.raises(ValueError, match="temperature"):
            ImageTextContrastiveLoss(None, temperature=temperature)
