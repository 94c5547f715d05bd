"""Fused Triton kernels: each residual in one pass over memory, forward and backward, alone or as a block's whole tail.

They serve CUDA tensors in float32, bfloat16 and float16 by themselves (:func:`is_available` says whether, and why
not), compute in float32 with the formulas of :mod:`lresnet.residual` and keep their digits. ``LRESNET_KERNELS=off`` in
the environment, or :func:`disabled`, leaves everything to those formulas.
"""

from lresnet.kernels.norm_relu import norm_relu
from lresnet.kernels.norm_tail import norm_tail
from lresnet.kernels.running import Update, track
from lresnet.kernels.switch import Availability, disabled, enabled, is_available, serves
from lresnet.kernels.tail import fused_tail

__all__ = [
    "Availability",
    "Update",
    "disabled",
    "enabled",
    "fused_tail",
    "is_available",
    "norm_relu",
    "norm_tail",
    "serves",
    "track",
]
