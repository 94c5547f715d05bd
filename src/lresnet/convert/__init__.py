"""A network of one's own, converted: :func:`lorentzify`. From its source, so that all but the sums stays as written."""

from lresnet.convert.lorentzify import lorentzify

__all__ = ["lorentzify"]
