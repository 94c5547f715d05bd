"""lorentz_resnet: ResNets of CIFAR shape on the hyperboloid, space coordinates only.

After He, Yang, Ying (KDD 2025), section 5.3. A convolution, a batch norm or a ReLU of the space part *is* the paper's
hyperbolic layer, so torch's own modules run untouched; the geometry is in the residual, the pooling and the head.
Where this differs from the released code (docs/fidelity.md): skip and branch are aligned, the residual stays on the
model's own hyperboloid, pixels are averaged in the Poincare ball, the head is HNN++'s regression.

Why K = -0.02 and a scale from 2. Between points far from the origin the residual's norm is about 1/sqrt(kappa),
whatever theirs: a skip branch that is shortened in every block hands its work to the branch, and gradients grow with
depth as in a network without skips. Norm after each block over the twin's, and the norm of the loss's gradient at the
first block's output over that at the last's, before training (normal images, 2 seeds; tests/models/test_resnet.py
holds the first line to it):

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
from lresnet.models.pretrained import Pretrained
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.pooling import CentroidPool, PoincareMean, SpaceMean
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.side_by_side import Conv2d, separate, side_by_side
from lresnet.residual import make_residual
from lresnet.residual.kernels import Update, norm_relu, norm_tail, serves, track
from lresnet.residual.modules import NoResidual, Residual

__all__ = ["LorentzResNet", "ResidualBlock"]

_POOLINGS = {"poincare": PoincareMean, "centroid": CentroidPool, "mean": SpaceMean}
_HEADS = ("mlr", "prototypes", "linear")
_FLAT = ("euclidean", "space", "none")  # residuals that the curvature does not enter
# Channels of a convolution that keep a GPU's matrix units busy (lresnet.nn.side_by_side has the figures).
_BUSY = 64
_NORMS = (torch.nn.BatchNorm2d, torch.nn.SyncBatchNorm)
_LORENTZ_OPTIONS = {"weight": "learned", "scale": "learned", "initial_scale": 2.0}


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
        residual_options: its options. Where they do not say, the Lorentz residual has a learned weight (from 1) and a
            learned scale (from 2).
        curvature: K < 0. learn_curvature: train it.
        pooling: "poincare", "centroid" or "mean"; None: "mean" for the twin, "poincare" for all others.
        head: "mlr", "prototypes" or "linear"; None: "linear" for the twin, "mlr" for all others.

    Shapes:
        images [B, in_channels, H, W], any H and W, any memory format -> logits [B, num_classes], float32 at least.

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
        flat = residual in _FLAT and pooling == "mean" and head == "linear"
        options = (_LORENTZ_OPTIONS if residual == "lorentz" else {}) | (residual_options or {})
        self.in_channels, self.width = in_channels, widths[0]
        self.reduction = 2 ** (len(widths) - 1)  # an image's sides end divided by this, rounded up
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not flat)
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
            if not (self.training and serves(x, x, dim=1) and self._as_built()):
                return self.blocks(self.stem(x))  # type: ignore[no-any-return]
            return self._part_by_part(x)
        return separate(self._part_by_part(side_by_side(x, images), images), images)

    def _part_by_part(self, x: Tensor, images: int = 1) -> Tensor:
        """Stem and blocks with what a call of them as a whole leaves no room for: how images lie, what norms saw."""
        updates: list[Update] = []
        conv, norm, _ = self.stem
        x = norm_relu(conv(x, images), norm, updates)
        for block in self.blocks:
            x = block(x, images, updates)
        track(updates)
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
        return _as_built(self.stem, self.blocks)


class ResidualBlock(torch.nn.Module):
    r"""The basic block of He et al. with the sum replaced: :math:`\mathrm{ReLU}(s(x) \oplus f(x))`.

    The branch f is conv3x3 (stride) - BN - ReLU - conv3x3 - BN; the shortcut s is the identity, or conv1x1 (stride) -
    BN where the shape changes. No convolution has a bias: a batch norm follows.

    Shapes:
        [B, in_channels, H, W] -> [B, out_channels, ceil(H / stride), ceil(W / stride)]
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

    def forward(self, x: Tensor, images: int = 1, updates: list[Update] | None = None) -> Tensor:
        """``images`` of them lie side by side in x (:mod:`lresnet.nn.side_by_side`).

        ``updates``: see :func:`lresnet.residual.kernels.norm_tail`.
        """
        branch = self.conv2(norm_relu(self.conv1(x, images), self.bn1, updates), images)
        skip = self.shortcut[0](x, images) if len(self.shortcut) else x
        return self.join(skip, branch) if updates is None else self.join(skip, branch, updates)

    def join(self, skip: Tensor, branch: Tensor, updates: list[Update] | None = None) -> Tensor:
        """All that comes after the block's convolutions: both batch norms, the residual with its scale, ReLU.

        One operator where there are kernels for this residual and these tensors.
        """
        kernel = self.residual.kernel()
        norm = self.shortcut[1] if len(self.shortcut) else None
        if kernel is not None and serves(skip, branch, dim=1):
            return norm_tail(skip, branch, branch_norm=self.bn2, skip_norm=norm, updates=updates, **kernel)
        skip = skip if norm is None else norm(skip)
        return torch.relu(self.residual(skip, self.bn2(branch)))


class _Pointwise(Conv2d):
    """A 1 x 1 convolution with a stride; on a CPU the pixels it looks at are picked out first.

    oneDNN does so itself, but where pixels have fewer channels than a vector register (8 in the small ResNets), its
    gradient of the weight writes past the end of its memory: wrong numbers, or a crash (uxlfoundation/oneDNN, issue
    6035). Without a stride it does not.
    """

    def forward(self, x: Tensor, images: int = 1) -> Tensor:
        if x.device.type != "cpu" or images > 1:
            return super().forward(x, images)
        down, right = self.stride
        return torch.nn.functional.conv2d(x[:, :, ::down, ::right], self.weight, self.bias)  # a fused norm gives a bias


class _Linear(torch.nn.Linear):
    """A linear head that computes in the points' precision, also where its weights are half."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


def _as_built(stem: torch.nn.Module, blocks: torch.nn.Module) -> bool:
    """Whether these are the parts that a network is built of, in their order, and nobody looks over their shoulder.

    Another kind of module, a class derived from ours, a ``forward`` of its own, a hook or a compiled part is a reason
    to call stem and blocks as they are: they may do something else, or expect other arguments or shapes.
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
    return all(type(block) is ResidualBlock for block in blocks) and all(map(_is_untouched, parts))


def _is_untouched(module: torch.nn.Module) -> bool:
    known = type(module) in (*_NORMS, torch.nn.Sequential, torch.nn.ReLU, Conv2d, _Pointwise, ResidualBlock)
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    own = "forward" in module.__dict__ or module._compiled_call_impl is not None
    return (known or isinstance(module, Residual)) and not hooks and not own


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
