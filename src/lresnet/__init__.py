"""Lorentzian residual networks for PyTorch.

A point of the hyperboloid is stored as its space part, so every tensor is a point::

    import torch, lresnet

    M = lresnet.Lorentz(curvature=-1.0)
    residual = lresnet.make_residual("lorentz", M)
    z = residual(torch.randn(8, 64), torch.randn(8, 64))

The names below load on first use: ``import lresnet`` alone imports neither torch nor geoopt.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from . import data, functional, geometry, metrics, models, nn, optim, residual, studies, testing, train
    from .geometry import Lorentz
    from .models import create_model, from_pretrained, lorentzify
    from .residual import LorentzResidual, make_residual

__all__ = [
    "Lorentz",
    "LorentzResidual",
    "__version__",
    "create_model",
    "data",
    "from_pretrained",
    "functional",
    "geometry",
    "lorentzify",
    "make_residual",
    "metrics",
    "models",
    "nn",
    "optim",
    "residual",
    "studies",
    "testing",
    "train",
]

# The room each name lives in; a room's own name stands for the room itself.
_ROOM_OF = {
    "Lorentz": "geometry",
    "LorentzResidual": "residual",
    "make_residual": "residual",
    "create_model": "models",
    "from_pretrained": "models",
    "lorentzify": "models",
    "data": "data",
    "functional": "functional",
    "geometry": "geometry",
    "metrics": "metrics",
    "models": "models",
    "nn": "nn",
    "optim": "optim",
    "residual": "residual",
    "studies": "studies",
    "testing": "testing",
    "train": "train",
}

if not TYPE_CHECKING:  # a type checker sees the imports above, and so still reports a misspelt name

    def __getattr__(name: str) -> object:
        """Import the room that holds ``name`` and keep the name here (PEP 562)."""
        if name not in _ROOM_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        room = import_module(f"{__name__}.{_ROOM_OF[name]}")
        value = room if name == _ROOM_OF[name] else getattr(room, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
