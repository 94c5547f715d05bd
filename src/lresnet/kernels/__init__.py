"""Fused Triton kernels of residuals, layers and optimisers: one pass over memory forward, one backward.

On CUDA the library uses them automatically; :func:`is_available` tells whether, and why not. ``LRESNET_KERNELS=off``
in the environment, or the context :func:`disabled`, selects the formulas in torch operations instead.

One operator is one file: its kernels, their launch, the torch operator with its derivative (where compilers need one),
and a public function ``fused_...``. A caller in :mod:`lresnet.residual`, :mod:`lresnet.nn` or :mod:`lresnet.optim`
first asks :func:`supports_pair` or :func:`supports_rows`, and imports the operator's file only then. So the library
works without Triton, and Triton is imported with the first kernel that runs. The modules ``runtime``, ``tiles`` and
``formulas`` do not need Triton.
"""

from lresnet.kernels.runtime import Availability, disabled, enabled, is_available, supports_pair, supports_rows

__all__ = ["Availability", "disabled", "enabled", "is_available", "supports_pair", "supports_rows"]
