"""A batch norm and its ReLU as one operator: torch's two modules read and write the images once more."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module

from lresnet.kernels.dispatch import columns, is_plain
from lresnet.kernels.norms import is_known, require_channels, require_pixels, takes_batch_statistics
from lresnet.kernels.rows import from_rows, to_rows
from lresnet.kernels.running import Update, track
from lresnet.kernels.switch import serves

__all__ = ["norm_relu"]


def norm_relu(x: Tensor, norm: Module, updates: list[Update] | None = None) -> Tensor:
    """``relu(norm(x))`` of images [B, C, H, W].

    The kernels run with a BatchNorm2d in training, elsewhere torch's modules. Forward reads x twice and writes z;
    backward reads x and the gradient twice and writes one. Kept in between: x and five numbers per channel.

    Args:
        updates: where to note what :func:`~lresnet.kernels.running.track` is to do later, for a whole network
            at once; None: now.

    Example:
        >>> norm_relu(torch.tensor([3.0, 5.0]).view(1, 1, 1, 2), torch.nn.BatchNorm2d(1)).detach().flatten()
        tensor([0.0000, 1.0000])
    """
    if x.dim() != 4 or not (is_known(norm) and takes_batch_statistics(norm) and serves(x, x, dim=1)):
        return torch.relu(norm(x))
    # Triton is imported with these, on first use: `import lresnet` stays light, and works without it.
    from lresnet.kernels import relu_eager, relu_ops

    require_channels(norm, x.shape[1])
    require_pixels(x)
    weight, bias = columns((norm.weight, norm.bias))
    z: Tensor
    if is_plain(x):
        z, statistics = relu_eager.EagerNormRelu.apply(x, weight, bias, norm.eps)  # type: ignore[no-untyped-call]
    else:
        rows, statistics = relu_ops.norm_relu(to_rows(x, 1), weight, bias, norm.eps)
        z = from_rows(rows, x.shape, 1)
    update = Update(norm, statistics)
    if updates is None:
        track([update])
    else:
        updates.append(update)
    return z
