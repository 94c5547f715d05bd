"""lorentz_resnet: ResNets for small images on the hyperboloid, in space coordinates.

After He, Yang, Ying (KDD 2025), section 5.3. A convolution, batch norm or ReLU of the space coordinates *is* the
paper's hyperbolic layer, so torch's own modules are used unchanged. The geometry is in the residual, the pooling and
the head. Differences from the released code (docs/reproduction/fidelity.md): skip and branch are aligned, the residual
stays on the model's own hyperboloid, pixels are averaged in the Poincare ball, and the head is the regression of HNN++.

Why K = -0.02 and scale 2: the residual of points far from the origin has a norm of about 1/sqrt(kappa), independent of
theirs. If the skip branch is shortened in every block, its share decreases, and gradients grow with depth as in a
network without skips. The table shows two ratios before training (random normal images, 2 seeds): the norm after each
block relative to the Euclidean baseline, and the norm of the loss's gradient at the first block's output relative to
the last block's. tests/models/test_resnet_training.py checks the norms of the first line.

    depth                       18           20           32           110
    kappa 0.02,  scale 2        0.4-0.8, 3   0.8-1.0, 5   0.6-1.0, 16  0.3-1.0, 4e3
    kappa 0.005, scale 2        0.6-0.9, 4   0.9-1.0, 6   0.9-1.0, 15  0.5-1.0, 700
    kappa 0.02,  scale sqrt(2)  0.3-0.6, 4   0.4-0.7, 7   0.3-0.7, 30  0.2-0.7, 4e5
    kappa 1,     scale 2        0.1-0.2, 6   0.2-0.6, 7   0.2-0.6, 45  0.1-0.6, 1e7
    Euclidean baseline          1, 5         1, 6         1, 16        1, 200

In flat space the residual with scale 2 is x + y. Among the values tried (1, 0.1, 0.02, 0.005), 0.02 is the largest
kappa that preserves the norms. For depths near 110 a smaller kappa, or a scale above 2, keeps the gradients closer to
those of the Euclidean baseline.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import full_precision
from lresnet.kernels import supports_pair
from lresnet.models.pretrained import Pretrained
from lresnet.nn.batch_norm import RunningUpdate, norm_relu, norm_tail, update_running_statistics
from lresnet.nn.conv2d import Conv2d, deinterleave, interleave
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.pooling import CentroidPool, PoincareMean, SpaceMean
from lresnet.nn.prototypes import Prototypes
from lresnet.residual import METHODS, make_residual
from lresnet.residual.base import Residual
from lresnet.residual.space import NoResidual

__all__ = ["LorentzResNet", "ResidualBlock", "is_unmodified"]

_POOLINGS = {"poincare": PoincareMean, "centroid": CentroidPool, "mean": SpaceMean}
_HEADS = ("mlr", "prototypes", "linear")
_NORMS = (torch.nn.BatchNorm2d, torch.nn.SyncBatchNorm)
# Channels with which a convolution keeps a GPU's matrix units busy (timings: lresnet.nn.conv2d).
_ENOUGH_CHANNELS = 64
# The default scale is fixed: a learned one lost a point on CIFAR-100 with the recipe "fast" (docs/howto/images.md).
_SCALE = 2.0


class LorentzResNet(Pretrained):
    r"""ResNet-18 or ResNet-(6n+2) for small images; with ``residual="euclidean"`` the Euclidean baseline.

    .. math:: x^{(l)} = \mathrm{relu}\big(s(x^{(l-1)}) \oplus f(x^{(l-1)})\big)

    A stem (3x3 convolution, batch norm, ReLU) is followed by stages of :class:`ResidualBlock`. Each stage after the
    first halves the resolution. Then the pixels are pooled to one point per image, which the head classifies.

    Args:
        depth: 18 (four stages of two blocks, widths 64 to 512), or 6n + 2 (three stages of n blocks, widths 8 to 32).
        num_classes: Number of logits.
        in_channels: Channels of the images.
        widths: Channels of each stage. Default: the widths above.
        residual: A name of :data:`lresnet.residual.METHODS`.
        residual_options: Options of the residual. By default the Lorentz residual has a learned weight, initially 1,
            and the scale 2, which is also the initial value of a learned scale.
        curvature: K < 0.
        learn_curvature: Train the curvature.
        pooling: "poincare", "centroid" or "mean". Default: "mean" for the Euclidean baseline, otherwise "poincare".
        head: "mlr", "prototypes" or "linear". Default: "linear" for the Euclidean baseline, otherwise "mlr".

    Shapes:
        images [B, in_channels, H, W], any H and W, any memory format -> logits [B, num_classes], float32 or wider.

    The attribute ``euclidean`` tells whether :meth:`embed` returns vectors (True) or points of ``manifold`` (False). It
    is True if residual, pooling and head are all independent of the curvature. A network with the residual "euclidean"
    returns points if its pooling is hyperbolic, or if its head is "prototypes" or "mlr": these heads interpret their
    input as space coordinates and measure distances on the hyperboloid.

    Example:
        >>> LorentzResNet(20, num_classes=10)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    model_name = "lorentz_resnet"

    def __init__(
        self,
        depth: int = 20,
        num_classes: int = 10,
        in_channels: int = 3,
        widths: Sequence[int] | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float = -0.02,
        learn_curvature: bool = False,
        pooling: str | None = None,
        head: str | None = None,
    ) -> None:
        super().__init__()
        blocks, widths = _stages(depth, widths)
        for name, count in (("num_classes", num_classes), ("in_channels", in_channels)):
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        is_baseline = residual == "euclidean"
        pooling = pooling or ("mean" if is_baseline else "poincare")
        head = head or ("linear" if is_baseline else "mlr")
        _require_choice("pooling", pooling, _POOLINGS)
        _require_choice("head", head, _HEADS)
        flat = residual in METHODS and not METHODS[residual].curved
        self.euclidean = flat and pooling == "mean" and head == "linear"
        options = residual_options or {}
        if residual == "lorentz":
            options = _lorentz_options(options)
        self.in_channels, self.width = in_channels, widths[0]
        self.reduction = 2 ** (len(widths) - 1)  # the blocks divide an image's sides by this, rounding up
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        self.stem = torch.nn.Sequential(
            Conv2d(in_channels, widths[0], 3, padding=1),
            torch.nn.BatchNorm2d(widths[0]),
            torch.nn.ReLU(),
        )
        self.blocks = torch.nn.Sequential(
            *(
                ResidualBlock(i, o, stride, make_residual(residual, self.manifold, dim=1, **options))
                for i, o, stride in _block_shapes(blocks, widths)
            )
        )
        self.pool = _POOLINGS[pooling](self.manifold)
        self.head = self._head(head, widths[-1], num_classes)
        # The channels of a pixel are adjacent in memory: convolutions are faster, and the residual reads whole points.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _head(self, kind: str, width: int, num_classes: int) -> torch.nn.Module:
        if kind == "linear":
            return _Linear(width, num_classes)
        return (LorentzMLR if kind == "mlr" else Prototypes)(width, num_classes, manifold=self.manifold)

    def forward(self, x: Tensor) -> Tensor:
        points = self.embed(x)
        with full_precision(points):
            return self.head(points)  # type: ignore[no-any-return]

    def embed(self, x: Tensor) -> Tensor:
        """Return one point per image in space coordinates, [B, widths[-1]], in float32 or wider."""
        return self.pool(self.features(x))  # type: ignore[no-any-return]

    def features(self, x: Tensor) -> Tensor:
        """Return the points before pooling, [B, widths[-1], H', W']."""
        _require_images(x, self.in_channels)
        if self.blocks[-1].bn2.training:  # type: ignore[union-attr]
            _require_pixels(x, self.reduction)
        images = self.num_interleaved(x)
        if images == 1:
            x = x.contiguous(memory_format=torch.channels_last)
            if not (self.training and supports_pair(x, x, dim=1) and self._is_unmodified()):
                return self.blocks(self.stem(x))  # type: ignore[no-any-return]
            return self._fused_features(x)
        return deinterleave(self._fused_features(interleave(x, images), images), images)

    def _fused_features(self, x: Tensor, interleaved: int = 1) -> Tensor:
        """Run stem and blocks on interleaved images, and update all running statistics at once."""
        updates: list[RunningUpdate] = []
        conv, norm, _ = self.stem
        x = norm_relu(conv(x, interleaved), norm, updates)
        for block in self.blocks:
            x = block(x, interleaved, updates)
        update_running_statistics(updates)
        return x

    def num_interleaved(self, x: Tensor) -> int:
        """Return how many images of the batch x to interleave (:mod:`lresnet.nn.conv2d`); 1 for a wide network.

        Images are interleaved in training only, where batch norms mix them anyway: a value that is not finite spreads
        to the other images. Stem and blocks must be unmodified; a group norm, for example, would treat interleaved
        images as one.
        """
        half = x.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cuda")
        images = max(1, _ENOUGH_CHANNELS // self.width)
        fits = x.shape[0] > 0 and x.shape[0] % images == 0
        faster = images > 1 and self.training and x.device.type == "cuda" and half and fits
        return images if faster and self._is_unmodified() else 1

    def _is_unmodified(self) -> bool:
        return is_unmodified(self.stem, self.blocks)


class ResidualBlock(torch.nn.Module):
    r"""Basic block of He et al. (CVPR 2016) with a residual connection in place of the sum.

    .. math:: y = \mathrm{relu}(s(x) \oplus f(x))

    The branch f is conv3x3 (stride) - BN - ReLU - conv3x3 - BN. The shortcut s is the identity, or if the shape changes
    conv1x1 (stride) - BN. The convolutions have no bias, since a batch norm follows.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        stride: Stride of the first convolution and of the shortcut.
        residual: Residual connection with ``dim=1``.

    Shapes:
        [B, in_channels, H, W] -> [B, out_channels, ceil(H / stride), ceil(W / stride)]

    Example:
        >>> block = ResidualBlock(8, 16, 2, make_residual("lorentz", Lorentz(-1.0), dim=1))
        >>> block(torch.randn(2, 8, 32, 32)).shape
        torch.Size([2, 16, 16, 16])
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, residual: Residual) -> None:
        super().__init__()
        self.conv1 = Conv2d(in_channels, out_channels, 3, stride, padding=1)
        self.bn1 = torch.nn.BatchNorm2d(out_channels)
        self.conv2 = Conv2d(out_channels, out_channels, 3, padding=1)
        self.bn2 = torch.nn.BatchNorm2d(out_channels)
        self.residual = residual
        self.shortcut = torch.nn.Sequential()
        if (stride != 1 or in_channels != out_channels) and not isinstance(residual, NoResidual):
            self.shortcut.append(_Pointwise(in_channels, out_channels, 1, stride))
            self.shortcut.append(torch.nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor, interleaved: int = 1, updates: list[RunningUpdate] | None = None) -> Tensor:
        """Return the block's output.

        Args:
            x: Images, of which ``interleaved`` are interleaved (:mod:`lresnet.nn.conv2d`).
            interleaved: Number of interleaved images.
            updates: See :func:`lresnet.nn.batch_norm.norm_relu`.
        """
        branch = self.conv2(norm_relu(self.conv1(x, interleaved), self.bn1, updates), interleaved)
        skip = self.shortcut[0](x, interleaved) if len(self.shortcut) else x
        return self.join(skip, branch) if updates is None else self.join(skip, branch, updates)

    def join(self, skip: Tensor, branch: Tensor, updates: list[RunningUpdate] | None = None) -> Tensor:
        """Apply all operations after the convolutions: both batch norms, the residual with its scale, and the ReLU.

        They are one operator if there is a kernel for this residual and these tensors.
        """
        kernel = self.residual.kernel()
        norm = self.shortcut[1] if len(self.shortcut) else None
        if kernel is not None and supports_pair(skip, branch, dim=1):
            return norm_tail(skip, branch, branch_norm=self.bn2, skip_norm=norm, updates=updates, **kernel)
        skip = skip if norm is None else norm(skip)
        return torch.relu(self.residual(skip, self.bn2(branch)))


class _Pointwise(Conv2d):
    """1 x 1 convolution with a stride, which on a CPU selects the pixels before the convolution.

    oneDNN would select them itself. But where pixels have fewer channels than a vector register (8 in the small
    ResNets), its gradient of the weight writes past the end of its memory, with wrong numbers or a crash
    (uxlfoundation/oneDNN, issue 6035). Without a stride it does not.
    """

    def forward(self, x: Tensor, interleaved: int = 1) -> Tensor:
        if x.device.type != "cpu" or interleaved > 1:
            return super().forward(x, interleaved)
        down, right = self.stride
        # The bias is not None if a norm has been fused into the convolution.
        return torch.nn.functional.conv2d(x[:, :, ::down, ::right], self.weight, self.bias)


class _Linear(torch.nn.Linear):
    """Linear head that computes in the precision of the points, even if its weights are in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


def is_unmodified(stem: torch.nn.Module, blocks: torch.nn.Module) -> bool:
    """Return whether stem and blocks are unmodified: our classes in order, no hook, replaced forward or compiled part.

    Any other part may compute something else, or expect other arguments or shapes, so it has to be called as usual.
    """
    if type(stem) is not torch.nn.Sequential or type(blocks) is not torch.nn.Sequential:
        return False
    if (
        len(stem) != 3
        or type(stem[0]) is not Conv2d
        or type(stem[1]) not in _NORMS
        or type(stem[2]) is not torch.nn.ReLU
    ):
        return False
    parts = [module for part in (stem, blocks) for module in part.modules()]
    return all(type(block) is ResidualBlock for block in blocks) and all(map(_is_unmodified, parts))


def _is_unmodified(module: torch.nn.Module) -> bool:
    known = type(module) in (*_NORMS, torch.nn.Sequential, torch.nn.ReLU, Conv2d, _Pointwise, ResidualBlock)
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    own = "forward" in module.__dict__ or module._compiled_call_impl is not None
    return (known or isinstance(module, Residual)) and not hooks and not own


def _lorentz_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the Lorentz residual with their defaults: a learned weight, and the scale 2."""
    options = {"weight": "learned", "scale": _SCALE} | given
    if options["scale"] == "learned":
        return {"initial_scale": _SCALE} | options
    if "initial_scale" in given:
        raise ValueError(
            f"initial_scale={given['initial_scale']} is for a learned scale, but the scale is {options['scale']}; "
            "add scale='learned'"
        )
    return options


def _stages(depth: int, widths: Sequence[int] | None) -> tuple[int, list[int]]:
    """Return the number of blocks of each stage and the channels of each stage."""
    if depth == 18:
        blocks, usual = 2, [64, 128, 256, 512]
    elif depth >= 8 and (depth - 2) % 6 == 0:
        blocks, usual = (depth - 2) // 6, [8, 16, 32]
    else:
        raise ValueError(f"depth must be 18 or 6n + 2 (8, 14, 20, 26, 32, ...), got {depth}")
    chosen = usual if widths is None else list(widths)
    if len(chosen) != len(usual) or min(chosen) < 1:
        raise ValueError(f"depth {depth} needs {len(usual)} positive widths, one per stage; got {widths}")
    return blocks, chosen


def _block_shapes(blocks: int, widths: list[int]) -> list[tuple[int, int, int]]:
    """Return (in, out, stride) of every block. The first block of each stage after the first has stride 2."""
    shapes = [(widths[0], widths[0], 1)] * blocks
    for before, width in itertools.pairwise(widths):
        shapes += [(before, width, 2)] + [(width, width, 1)] * (blocks - 1)
    return shapes


def _require_choice(name: str, value: str, known: Sequence[str] | dict[str, Any]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _require_images(x: object, channels: int) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"images must be a floating point tensor, got {kind}; convert them, e.g. x.float() / 255")
    if x.dim() != 4 or x.shape[1] != channels or 0 in x.shape[2:]:
        raise ValueError(
            f"images must have shape [B, {channels}, H, W] with at least one pixel, got {tuple(x.shape)}; "
            "a single image needs a batch axis, x.unsqueeze(0)"
        )


def _require_pixels(x: Tensor, reduction: int) -> None:
    """Raise if the last stage has a single pixel. torch's message would not mention the images."""
    height, width = (-(-side // reduction) for side in x.shape[2:])
    if x.shape[0] * height * width == 1:
        raise ValueError(
            "a batch norm in training needs more than one pixel per channel, but images of shape "
            f"{tuple(x.shape)} are reduced to a single pixel; use more or larger images, or call eval()"
        )
