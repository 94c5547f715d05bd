"""Lorentzian residual networks for PyTorch.

A point of the hyperboloid is stored as its space part, so every tensor is a point::

    import torch, lresnet

    M = lresnet.Lorentz(curvature=-1.0)
    residual = lresnet.make_residual("lorentz", M)
    z = residual(torch.randn(8, 64), torch.randn(8, 64))

The names below load on first use: ``import lresnet`` alone imports neither torch nor geoopt.
"""

from typing import TYPE_CHECKING

from ._lazy import lazy_names
from ._version import __version__

if TYPE_CHECKING:
    from . import (
        convert,
        data,
        functional,
        geometry,
        kernels,
        metrics,
        models,
        nn,
        optim,
        plots,
        residual,
        runs,
        testing,
        train,
    )
    from .convert import find_sums, from_pretrained, lorentzify
    from .geometry import Lorentz
    from .models import create_model
    from .residual import LorentzResidual, make_residual
    from .runs import Run, fit
    from .train import TrainConfig

__all__ = [
    "Lorentz",
    "LorentzResidual",
    "Run",
    "TrainConfig",
    "__version__",
    "convert",
    "create_model",
    "data",
    "find_sums",
    "fit",
    "from_pretrained",
    "functional",
    "geometry",
    "kernels",
    "lorentzify",
    "make_residual",
    "metrics",
    "models",
    "nn",
    "optim",
    "plots",
    "residual",
    "runs",
    "testing",
    "train",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and so still reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Lorentz": "geometry",
            "LorentzResidual": "residual",
            "Run": "runs",
            "TrainConfig": "train",
            "fit": "runs",
            "make_residual": "residual",
            "create_model": "models",
            "from_pretrained": "convert",
            "find_sums": "convert",
            "lorentzify": "convert",
            "convert": "convert",
            "data": "data",
            "functional": "functional",
            "geometry": "geometry",
            "kernels": "kernels",
            "metrics": "metrics",
            "models": "models",
            "nn": "nn",
            "optim": "optim",
            "plots": "plots",
            "residual": "residual",
            "runs": "runs",
            "testing": "testing",
            "train": "train",
        },
    )
