"""A step on shapes alone, before the first real one: kernels that it will need begin to compile, all at once.

One after the other, as a first step meets them, the forty kernels of a ResNet in training take Triton a quarter of a
minute; tensors without values meet them all within a second, and :mod:`lresnet.kernels.start` has them
compiled on other cores.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

__all__ = ["rehearse"]


def rehearse(model: torch.nn.Module, play: Callable[[Callable[..., Tensor]], Tensor]) -> None:
    """Run ``play`` on shapes: no value is computed, no memory of a device is taken, ``model`` stays as it is.

    Backward too, where the model is in training. A head start and no more: what cannot do without values (a model of
    one's own that reads one, say) goes without.

    Args:
        play: given a callable that stands for the model, gives the loss, or just what the model gives.

    Example:
        >>> rehearse(torch.nn.Linear(3, 2), lambda call: call(torch.randn(4, 3)).sum())
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensors = itertools.chain(model.named_parameters(), model.named_buffers())
            shapes: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors}
            found = play(lambda *inputs: torch.func.functional_call(model, shapes, inputs))
            if model.training:
                wanted = [tensor for tensor in shapes.values() if tensor.requires_grad]
                torch.autograd.grad(found, wanted, allow_unused=True)
    except Exception:
        logging.getLogger(__name__).debug("no rehearsal", exc_info=True)
