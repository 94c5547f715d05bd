"""Layers, one concept a file."""

from lresnet.nn.fermi_dirac import FermiDirac
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.prototypes import Prototypes

__all__ = ["FermiDirac", "LorentzMLR", "Prototypes"]
