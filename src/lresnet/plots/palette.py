"""Colours and markers: told apart by colour-blind readers, and in black and white.

The colours are those of Okabe and Ito ("Color Universal Design", 2008) without their yellow, which is hard to see on
white, and black, which is hard to see in the dark.
"""

from __future__ import annotations

__all__ = ["CLASS_COLOURS", "METHOD_LOOKS", "class_colour"]

CLASS_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#8C8C8C")

METHOD_LOOKS = {
    "lorentz": ("#D55E00", "o"),
    "space": ("#009E73", "s"),
    "tangent": ("#CC79A7", "D"),
    "parallel_transport": ("#0072B2", "^"),
    "parallel_transport_reversed": ("#56B4E9", "v"),
    "parallel_transport_textbook": ("#56B4E9", "v"),  # never in one picture with the one above
    "none": ("#E69F00", "X"),
    "euclidean": ("#8C8C8C", "P"),
}
"""Colour and matplotlib marker of a residual method."""


def class_colour(label: int) -> str:
    """The colour of class ``label``; after seven they repeat, and markers, of which there are five, tell them apart.

    Example:
        >>> class_colour(1)
        '#D55E00'
    """
    return CLASS_COLOURS[label % len(CLASS_COLOURS)]
