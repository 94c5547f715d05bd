"""Fused Triton kernels of graph layers and of pooling: what takes a dozen passes over memory in torch takes one.

They serve float32 tensors on CUDA where the curvature is fixed, and are switched on and off together with those of
the residuals (:mod:`lresnet.residual.kernels`). A graph of a few thousand nodes is all launches: with these kernels a
training step of ``lorentz_gcn`` has a third of them, and one of ``lorentz_sgformer`` no more than its Euclidean twin's
(with the step of Riemannian Adam as one too: :mod:`lresnet.optim.fused_step`).
"""

from lresnet.nn.kernels.fused import LONGEST_ROW, fused, serves

__all__ = ["LONGEST_ROW", "fused", "serves"]
