"""lorentz_resnet: ResNets of CIFAR shape on the hyperboloid, space coordinates only.

After He, Yang, Ying (KDD 2025), section 5.3. A convolution, a batch norm or a ReLU of the space part *is* the paper's
hyperbolic layer, so torch's own modules run untouched; the geometry is in the residual, the pooling and the head.
Where this differs from the released code (docs/fidelity.md): skip and branch are aligned, the residual stays on the
model's own hyperboloid, pixels are averaged in the Poincare ball, the head is HNN++'s regression.

Why K = -0.02 and the scale 2. Between points far from the origin the residual's norm is about 1/sqrt(kappa),
whatever theirs: a skip branch that is shortened in every block hands its work to the branch, and gradients grow with
depth as in a network without skips. Norm after each block over the twin's, and the norm of the loss's gradient at the
first block's output over that at the last's, before training (normal images, 2 seeds;
tests/models/test_resnet_training.py holds the first line to it):

    depth                       18           20           32           110
    kappa 0.02,  scale 2        0.4-0.8, 3   0.8-1.0, 5   0.6-1.0, 16  0.3-1.0, 4e3
    kappa 0.005, scale 2        0.6-0.9, 4   0.9-1.0, 6   0.9-1.0, 15  0.5-1.0, 700
    kappa 0.02,  scale sqrt(2)  0.3-0.6, 4   0.4-0.7, 7   0.3-0.7, 30  0.2-0.7, 4e5
    kappa 1,     scale 2        0.1-0.2, 6   0.2-0.6, 7   0.2-0.6, 45  0.1-0.6, 1e7
    Euclidean twin              1, 5         1, 6         1, 16        1, 200

In flat space the residual of scale 2 is x + y. Of the kappas tried (1, 0.1, 0.02, 0.005), 0.02 is the largest that
keeps the norms; for depths near 110 a smaller one, or a scale above 2, keeps the gradients nearer to the twin's.
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
from lresnet.models.residual_block import ResidualBlock, is_as_built
from lresnet.nn.batch_norm import RunningUpdate, norm_relu, update_running_statistics
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.pooling import CentroidPool, PoincareMean, SpaceMean
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.side_by_side import Conv2d, separate, side_by_side
from lresnet.residual import METHODS, make_residual

__all__ = ["LorentzResNet"]

_POOLINGS = {"poincare": PoincareMean, "centroid": CentroidPool, "mean": SpaceMean}
_HEADS = ("mlr", "prototypes", "linear")
# Channels of a convolution that keep a GPU's matrix units busy (lresnet.nn.side_by_side has the figures).
_BUSY = 64
# The scale is not learned: with recipe fast that cost a point on CIFAR-100 (docs/images.md).
_SCALE = 2.0


class LorentzResNet(Pretrained):
    r"""ResNet-18 or ResNet-(6n+2) for small images; with ``residual="euclidean"`` its Euclidean twin, same code.

    A stem (3x3 convolution, batch norm, ReLU) and stages of :class:`ResidualBlock`, each but the first at half the
    resolution; then one point an image, then the head.

    Args:
        depth: 18 (four stages of two blocks, widths 64 to 512), or 6n + 2 (three stages of n blocks, widths 8 to 32).
        num_classes: number of logits.
        in_channels: of the images.
        widths: channels of each stage, if not the above.
        residual: a name of :data:`lresnet.residual.RESIDUALS`.
        residual_options: its options. Where they do not say, the Lorentz residual has a learned weight (from 1) and
            the scale 2; one that is to be learned starts there.
        curvature: K < 0. learn_curvature: train it.
        pooling: "poincare", "centroid" or "mean"; None: "mean" for the twin, "poincare" for all others.
        head: "mlr", "prototypes" or "linear"; None: "linear" for the twin, "mlr" for all others.

    Shapes:
        images [B, in_channels, H, W], any H and W, any memory format -> logits [B, num_classes], float32 at least.

    ``euclidean`` says what :meth:`embed` gives: True, vectors; False, points of ``manifold``. It is True where the
    curvature enters nowhere, as in the twin. Residual, pooling and head decide together: the head "prototypes" or "mlr"
    takes what it is given for space coordinates of points and measures on the hyperboloid, so what a twin with such a
    head learns are points; and one that pools in hyperbolic space ends there.

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
        twin = residual == "euclidean"
        pooling = pooling or ("mean" if twin else "poincare")
        head = head or ("linear" if twin else "mlr")
        _require_choice("pooling", pooling, _POOLINGS)
        _require_choice("head", head, _HEADS)
        flat = residual in METHODS and not METHODS[residual].curved
        self.euclidean = flat and pooling == "mean" and head == "linear"
        options = residual_options or {}
        if residual == "lorentz":
            options = _lorentz_options(options)
        self.in_channels, self.width = in_channels, widths[0]
        self.reduction = 2 ** (len(widths) - 1)  # an image's sides end divided by this, rounded up
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
        # A pixel's channels lie side by side: convolutions like it, and the residual reads whole points.
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
        """One point an image, [B, widths[-1]], in space coordinates; float32 at least."""
        return self.pool(self.features(x))  # type: ignore[no-any-return]

    def features(self, x: Tensor) -> Tensor:
        """The points before pooling, [B, widths[-1], H', W']."""
        _require_images(x, self.in_channels)
        if self.blocks[-1].bn2.training:  # type: ignore[union-attr]
            _require_pixels(x, self.reduction)
        images = self.images_side_by_side(x)
        if images == 1:
            x = x.contiguous(memory_format=torch.channels_last)
            if not (self.training and supports_pair(x, x, dim=1) and self._as_built()):
                return self.blocks(self.stem(x))  # type: ignore[no-any-return]
            return self._part_by_part(x)
        return separate(self._part_by_part(side_by_side(x, images), images), images)

    def _part_by_part(self, x: Tensor, images: int = 1) -> Tensor:
        """Stem and blocks with what a call of them as a whole leaves no room for: how images lie, what norms saw."""
        updates: list[RunningUpdate] = []
        conv, norm, _ = self.stem
        x = norm_relu(conv(x, images), norm, updates)
        for block in self.blocks:
            x = block(x, images, updates)
        update_running_statistics(updates)
        return x

    def images_side_by_side(self, x: Tensor) -> int:
        """How many images of the batch x pass through the convolutions of a narrow network side by side.

        Only in training, where batch norms mix images anyway: what is not finite in one spreads to its neighbours. And
        only through the parts that are built here: another norm, say, might take neighbours for one image.
        """
        half = x.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cuda")
        images = max(1, _BUSY // self.width)
        fits = x.shape[0] > 0 and x.shape[0] % images == 0
        faster = images > 1 and self.training and x.device.type == "cuda" and half and fits
        return images if faster and self._as_built() else 1

    def _as_built(self) -> bool:
        return is_as_built(self.stem, self.blocks)


class _Linear(torch.nn.Linear):
    """A linear head that computes in the points' precision, also where its weights are half."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


def _lorentz_options(given: dict[str, Any]) -> dict[str, Any]:
    """What is said of the Lorentz residual; what is not: a learned weight, and the scale 2, or learned from there."""
    options = {"weight": "learned", "scale": _SCALE} | given
    if options["scale"] == "learned":
        return {"initial_scale": _SCALE} | options
    if "initial_scale" in given:
        raise ValueError(
            f"initial_scale={given['initial_scale']} is where a learned scale starts, but the scale is "
            f"{options['scale']}; add scale='learned'"
        )
    return options


def _stages(depth: int, widths: Sequence[int] | None) -> tuple[int, list[int]]:
    """Blocks of each stage and channels of each stage."""
    if depth == 18:
        blocks, usual = 2, [64, 128, 256, 512]
    elif depth >= 8 and (depth - 2) % 6 == 0:
        blocks, usual = (depth - 2) // 6, [8, 16, 32]
    else:
        raise ValueError(f"depth must be 18 or 6n + 2 (8, 14, 20, 26, 32, ...), got {depth}")
    chosen = usual if widths is None else list(widths)
    if len(chosen) != len(usual) or min(chosen) < 1:
        raise ValueError(f"depth {depth} needs {len(usual)} widths, positive numbers, one a stage; got {widths}")
    return blocks, chosen


def _block_shapes(blocks: int, widths: list[int]) -> list[tuple[int, int, int]]:
    """(in, out, stride) of every block: the first of each stage but the first halves the resolution."""
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
    """Torch would say so too, but of the last stage's pixels and not of the images."""
    height, width = (-(-side // reduction) for side in x.shape[2:])
    if x.shape[0] * height * width == 1:
        raise ValueError(
            "a batch norm in training needs more than one pixel a channel, but images of shape "
            f"{tuple(x.shape)} end as one; take more or larger images, or call eval()"
        )
