"""lorentz_resnet: ResNets for small and large images on the hyperboloid, in space coordinates.

After He, Yang, Ying (KDD 2025), section 5.3. A convolution, batch norm or ReLU of the space coordinates *is* the
paper's hyperbolic layer, so torch's own modules are used unchanged. The geometry is in the residual, the pooling and
the head. The max pooling of the ImageNet stem is a map of the coordinates, like the ReLU: each coordinate is the
largest of nine points, and the time coordinate follows. It is not a mean of points and does not commute with
isometries. Differences from the released code (docs/reproduction/fidelity.md): skip and branch are aligned, the
residual stays on the model's own hyperboloid, pixels are averaged in the Poincare ball, and the head is the regression
of HNN++.

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

With the ImageNet stem (8 random images of 128 x 128; for depth 50 with weights 1 and 0 of the last norms):

    depth                       18           34            50, weights 1   50, weights 0
    kappa 0.02,  scale 2        0.4-0.7, 3   0.3-0.7, 20   0.2-0.5, 600    0.3-0.8, 0.5
    kappa 0.01,  scale 2        0.5-0.8, 3   0.4-0.8, 16   0.2-0.7, 500    0.4-0.8, 0.6
    kappa 0.005, scale 2        0.6-0.9, 3   0.5-0.9, 13   0.3-0.8, 300    0.5-0.9, 0.7
    kappa 0.002, scale 2        0.8-1.0, 3   0.6-1.0, 12   0.4-0.9, 200    0.6-0.9, 0.9
    kappa 0.001, scale 2        0.8-1.0, 4   0.8-1.0, 12   0.5-0.9, 160    0.8-1.0, 1.0
    Euclidean baseline          1, 4         1, 13         1, 110          1, 1.2

The norms grow with the width: a pixel of 2,048 normalised channels has a norm of about 45, one of 64 channels of 8. So
the default kappa is the largest of these that preserves the norms as 0.02 does at depth 18 (at least 0.37): 0.01 for
depth 34 and 0.002 for depth 50. With weights 0 of the last norms, which training increases, the gradients of depth 50
have nearly one size in all blocks. The branch is then at the origin, and the block is not the identity, as it would be
in flat space, but a step towards the origin, which shortens the norms by the first factors in the last column. Basic
blocks keep the weights 1: they are shallower, and earlier versions had them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.state import EXTRA_STATE
from lresnet.kernels import supports_pair
from lresnet.models.image_model import HEADS, POOLINGS, ImageModel, classifier, require_choice, require_images
from lresnet.models.resnet_blocks import BottleneckBlock, ResidualBlock, is_unmodified
from lresnet.nn.batch_norm import RunningUpdate, norm_relu, update_running_statistics
from lresnet.nn.conv2d import Conv2d, deinterleave, interleave
from lresnet.residual import METHODS, make_residual

__all__ = ["BottleneckBlock", "LorentzResNet", "ResidualBlock", "is_unmodified"]

_STEMS = ("imagenet", "cifar")
_BLOCKS = {"basic": ResidualBlock, "bottleneck": BottleneckBlock}
# Channels with which a convolution keeps a GPU's matrix units busy (timings: lresnet.nn.conv2d).
_ENOUGH_CHANNELS = 64
# The default scale is fixed: a learned one lost a point on CIFAR-100 with the recipe "fast" (docs/howto/images.md).
_SCALE = 2.0
# Default curvatures (the module's docstring).
_CURVATURE, _CURVATURE_34, _CURVATURE_50 = -0.02, -0.01, -0.002


class LorentzResNet(ImageModel):
    r"""ResNet-18, -34, -50 or -(6n+2); with ``residual="euclidean"`` the Euclidean baseline.

    .. math:: x^{(l)} = \mathrm{relu}\big(s(x^{(l-1)}) \oplus f(x^{(l-1)})\big)

    A stem (convolution, batch norm, ReLU) is followed by stages of :class:`ResidualBlock` or :class:`BottleneckBlock`.
    Each stage after the first halves the resolution. Then the pixels are pooled to one point per image, which the head
    classifies. With ``residual="euclidean"`` and ``stem="imagenet"`` the network computes what torchvision's and timm's
    ``resnet18``, ``resnet34`` and ``resnet50`` compute.

    Args:
        depth: 18 or 34 (four stages, widths 64 to 512), 50 with ``block="bottleneck"`` (four stages of outputs four
            times as wide), or 6n + 2 (three stages of n blocks, widths 8 to 32).
        num_classes: Number of logits.
        in_channels: Channels of the images.
        widths: Channels of each stage, in bottleneck blocks those of the 3 x 3 convolution. Default: the widths above.
        residual: A name of :data:`lresnet.residual.METHODS`.
        residual_options: Options of the residual. By default the Lorentz residual has a learned weight, initially 1,
            and the scale 2, which is also the initial value of a learned scale.
        curvature: K < 0. Default: -0.02; -0.01 for depth 34, and -0.002 for bottleneck blocks.
        learn_curvature: Train the curvature.
        pooling: "poincare", "centroid" or "mean". Default: "mean" for the Euclidean baseline, otherwise "poincare".
        head: "mlr", "prototypes" or "linear". Default: "linear" for the Euclidean baseline, otherwise "mlr".
        stem: "cifar" (3x3 convolution) for small images, or "imagenet" (7x7 convolution with stride 2, then 3x3 max
            pooling with stride 2), which divides the cost of the blocks by 16. Default: "imagenet" for depth 34 and
            for bottleneck blocks, otherwise "cifar". A run chooses it by the size of the images.
        block: "basic" or "bottleneck". Default: "bottleneck" for depth 50 with ``stem="imagenet"``, otherwise "basic".

    Shapes:
        images [B, in_channels, H, W], any H and W, any memory format -> logits [B, num_classes], float32 or wider.

    The attribute ``euclidean`` tells whether :meth:`embed` returns vectors (True) or points of ``manifold`` (False). It
    is True if residual, pooling and head are all independent of the curvature. A network with the residual "euclidean"
    returns points if its pooling is hyperbolic, or if its head is "prototypes" or "mlr": these heads interpret their
    input as space coordinates and measure distances on the hyperboloid.

    Example:
        >>> LorentzResNet(20, num_classes=10)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> LorentzResNet(18, num_classes=10, stem="imagenet").features(torch.randn(2, 3, 96, 96)).shape
        torch.Size([2, 512, 3, 3])
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
        curvature: float | None = None,
        learn_curvature: bool = False,
        pooling: str | None = None,
        head: str | None = None,
        stem: str | None = None,
        block: str | None = None,
    ) -> None:
        super().__init__()
        shape = _shape(depth, widths, stem, block)
        if in_channels < 1:
            raise ValueError(f"in_channels must be at least 1, got {in_channels}")
        is_baseline = residual == "euclidean"
        pooling = pooling or ("mean" if is_baseline else "poincare")
        head = head or ("linear" if is_baseline else "mlr")
        require_choice("pooling", pooling, POOLINGS)
        require_choice("head", head, HEADS)
        flat = residual in METHODS and not METHODS[residual].curved
        self.euclidean = flat and pooling == "mean" and head == "linear"
        options = residual_options or {}
        if residual == "lorentz":
            options = _lorentz_options(options)
        self.in_channels, self.width, self.stem_name = in_channels, shape.widths[0], shape.stem
        # Stem and blocks divide an image's sides by this, rounding up.
        self.reduction = 2 ** (len(shape.widths) - 1) * (4 if shape.stem == "imagenet" else 1)
        if curvature is None:
            wide = _CURVATURE_34 if depth == 34 else _CURVATURE
            curvature = _CURVATURE_50 if shape.block == "bottleneck" else wide
        chosen = {"curvature": curvature, "stem": shape.stem, "block": shape.block}
        self.config |= {name: value for name, value in chosen.items() if name in self.config}  # saved as chosen
        self._counts = shape.counts
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        self.stem = _make_stem(in_channels, shape)
        self.blocks = torch.nn.Sequential(
            *(
                _BLOCKS[shape.block](i, o, stride, make_residual(residual, self.manifold, dim=1, **options))
                for i, o, stride in _block_shapes(shape)
            )
        )
        self.pool = POOLINGS[pooling](self.manifold)
        width = shape.widths[-1] * _BLOCKS[shape.block].expansion
        self.head = classifier(head, width, num_classes, self.manifold)
        # The channels of a pixel are adjacent in memory: convolutions are faster, and the residual reads whole points.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, x: Tensor) -> Tensor:
        """Return the points before pooling, [B, channels of the last stage, H', W']."""
        require_images(x, self.in_channels)
        norm = getattr(self.blocks[-1], "last_norm", None)  # other blocks than ours may have none
        if norm is not None and norm.training:
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
        conv, norm, _, *pool = self.stem
        x = norm_relu(conv(x, interleaved), norm, updates)
        for part in pool:
            x = part(x)
        for block in self.blocks:
            x = block(x, interleaved, updates)
        update_running_statistics(updates)
        return x

    def load_torchvision(self, state: Mapping[str, Tensor]) -> list[str]:
        """Load the weights of torchvision's or timm's ResNet of the same depth, e.g. pretrained ones.

        Args:
            state: Its ``state_dict()``. ``fc`` is loaded if the head is "linear" and has as many classes.

        Returns:
            The names of this network's parameters and buffers that keep their values, such as the residuals' weights.

        Raises:
            ValueError: The state is not that of a ResNet of this shape; the message names the first difference.
        """
        own = self.state_dict()
        places = [(stage, i) for stage, count in enumerate(self._counts, 1) for i in range(count)]
        blocks = {f"layer{stage}.{i}.": f"blocks.{number}." for number, (stage, i) in enumerate(places)}
        found: dict[str, Tensor] = {}
        for name, tensor in state.items():
            target = name.replace("downsample.", "shortcut.")
            for theirs, ours in {"conv1.": "stem.0.", "bn1.": "stem.1.", "fc.": "head.", **blocks}.items():
                target = ours + target.removeprefix(theirs) if name.startswith(theirs) else target
            if name.startswith("fc.") and (target not in own or own[target].shape != tensor.shape):
                continue
            if target not in own or own[target].shape != tensor.shape:
                shape = "nothing" if target not in own else list(own[target].shape)
                raise ValueError(f"{name} has the shape {list(tensor.shape)}, but this network has {shape} for it")
            found[target] = tensor
        missing = [name for name in own if name not in found and name.startswith(("stem.", "blocks."))]
        missing = [name for name in missing if ".residual." not in name and "num_batches_tracked" not in name]
        if missing:
            raise ValueError(f"the state has no weights for {missing[0]}; give that of a ResNet of the same shape")
        self.load_state_dict(own | found)
        return [name for name in own if name not in found and not name.endswith(EXTRA_STATE)]

    def num_interleaved(self, x: Tensor) -> int:
        """Return how many images of the batch x to interleave (:mod:`lresnet.nn.conv2d`); 1 for a wide network.

        Images are interleaved in training only, where batch norms mix them anyway: a value that is not finite spreads
        to the other images. Stem and blocks must be unmodified; a group norm, for example, would treat interleaved
        images as one.
        """
        half = x.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cuda")
        images = max(1, _ENOUGH_CHANNELS // self.width)
        if self.stem_name == "imagenet":  # max pooling would mix interleaved images
            images = 1
        fits = x.shape[0] > 0 and x.shape[0] % images == 0
        faster = images > 1 and self.training and x.device.type == "cuda" and half and fits
        return images if faster and self._is_unmodified() else 1

    def _is_unmodified(self) -> bool:
        return is_unmodified(self.stem, self.blocks)


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


class _Shape(NamedTuple):
    """Stem, kind of the blocks, and blocks and channels of each stage."""

    stem: str
    block: str
    counts: list[int]
    widths: list[int]


def _shape(depth: int, widths: Sequence[int] | None, stem: str | None, block: str | None) -> _Shape:
    """Return the shape of a network, with the defaults of :class:`LorentzResNet` for arguments that are None."""
    for name, value, known in (("stem", stem, _STEMS), ("block", block, _BLOCKS)):
        if value is not None:
            require_choice(name, value, known)
    # Depth 50 alone is 6n + 2, as in the first versions.
    block = block or ("bottleneck" if depth == 50 and stem == "imagenet" else "basic")
    stem = stem or ("imagenet" if depth == 34 or block == "bottleneck" else "cifar")
    usual = [64, 128, 256, 512]
    if block == "bottleneck":
        if depth != 50:
            raise ValueError(f"bottleneck blocks need depth 50, got {depth}; use block='basic' or depth=50")
        counts = [3, 4, 6, 3]
    elif depth in (18, 34):
        counts = [2, 2, 2, 2] if depth == 18 else [3, 4, 6, 3]
    elif depth >= 8 and (depth - 2) % 6 == 0:
        counts, usual = [(depth - 2) // 6] * 3, [8, 16, 32]
    else:
        raise ValueError(
            f"depth must be 18, 34, 50 or 6n + 2 (8, 14, 20, 26, 32, ...), got {depth}; 50 needs block='bottleneck'"
        )
    chosen = usual if widths is None else list(widths)
    if len(chosen) != len(usual) or min(chosen) < 1:
        raise ValueError(f"depth {depth} needs {len(usual)} positive widths, one per stage; got {widths}")
    return _Shape(stem, block, counts, chosen)


def _make_stem(in_channels: int, shape: _Shape) -> torch.nn.Sequential:
    width = shape.widths[0]
    large = shape.stem == "imagenet"
    convolution = Conv2d(in_channels, width, 7, 2, padding=3) if large else Conv2d(in_channels, width, 3, padding=1)
    parts = [convolution, torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts, *([torch.nn.MaxPool2d(3, 2, padding=1)] if large else []))


def _block_shapes(shape: _Shape) -> list[tuple[int, int, int]]:
    """Return (in, out, stride) of every block. The first block of each stage after the first has stride 2."""
    outputs = [width * _BLOCKS[shape.block].expansion for width in shape.widths]
    inputs = [shape.widths[0], *outputs]
    shapes: list[tuple[int, int, int]] = []
    for stage, count in enumerate(shape.counts):
        first = inputs[stage], outputs[stage], 1 if stage == 0 else 2
        shapes += [first] + [(outputs[stage], outputs[stage], 1)] * (count - 1)
    return shapes


def _require_pixels(x: Tensor, reduction: int) -> None:
    """Raise if the last stage has a single pixel. torch's message would not mention the images."""
    height, width = (-(-side // reduction) for side in x.shape[2:])
    if x.shape[0] * height * width == 1:
        raise ValueError(
            "a batch norm in training needs more than one pixel per channel, but images of shape "
            f"{tuple(x.shape)} are reduced to a single pixel; use more or larger images, or call eval()"
        )
