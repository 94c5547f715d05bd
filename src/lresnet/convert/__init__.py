"""Conversion of a network: :func:`find_sums` shows its sums, :func:`lorentzify` makes them residual connections."""

from lresnet.convert.lorentzify import lorentzify
from lresnet.convert.plan import Plan, Sum, find_sums
from lresnet.convert.saved import from_pretrained

__all__ = ["Plan", "Sum", "find_sums", "from_pretrained", "lorentzify"]
