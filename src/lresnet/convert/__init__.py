"""Conversion of a network: :func:`lorentzify` rewrites the sums in its source and leaves all other code unchanged."""

from lresnet.convert.lorentzify import lorentzify

__all__ = ["lorentzify"]
