"""Colours and markers: told apart by colour-blind readers, and in black and white.

The colours are those of Okabe and Ito ("Color Universal Design", 2008) without their yellow, which is hard to see on
white, and black, which is hard to see in the dark.
"""

from __future__ import annotations

from lresnet.residual.registry import METHODS

__all__ = ["CLASS_COLOURS", "class_colour", "method_look"]

CLASS_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#8C8C8C")


def class_colour(label: int) -> str:
    """The colour of class ``label``; after seven they repeat, and markers, of which there are five, tell them apart.

    Example:
        >>> class_colour(1)
        '#D55E00'
    """
    return CLASS_COLOURS[label % len(CLASS_COLOURS)]


def method_look(name: str) -> tuple[str, str]:
    """Return colour and matplotlib marker of a residual method; an unknown method is a grey circle.

    Example:
        >>> method_look("lorentz")
        ('#D55E00', 'o')
    """
    return (METHODS[name].colour, METHODS[name].marker) if name in METHODS else ("#8C8C8C", "o")
