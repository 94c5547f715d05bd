"""Features of short texts without a vocabulary: hashed words and parts of words."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import sparse

__all__ = ["TEXT_COLUMNS", "text_features"]

TEXT_COLUMNS = 2**12
"""Columns that words and their parts are hashed to."""

_PART = 4  # letters of a part of a word
_WORD_WEIGHT, _PART_WEIGHT = 1.0, 0.5


def text_features(texts: Sequence[str], columns: int = TEXT_COLUMNS) -> sparse.csr_array:
    """Return one row of length 1 per text: hashed words and parts of words of four letters.

    A word and its parts are hashed to columns (CRC-32, so that every machine gives the same ones); a repeated word
    counts by the logarithm of its number. Words are compared without case. Texts without a letter or digit have a row
    of zeros. The parts relate words of one stem, such as *dog* and *dogs*, and unknown words to known ones.

    Args:
        texts: N texts.
        columns: Number of columns.

    Returns:
        ``[N, columns]``, float64, with sorted column numbers.

    Example:
        >>> x = text_features(["brown bear", "polar bear", "oak"])
        >>> (x @ x.T).toarray().round(2).tolist()
        [[1.0, 0.47, 0.0], [0.47, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    rows, places, values = list[int](), list[int](), list[float]()
    for row, text in enumerate(texts):
        found: dict[int, float] = {}
        for token, count in Counter(_tokens(text)).items():
            weight = _PART_WEIGHT if token[0] == "\0" else _WORD_WEIGHT
            place = zlib.crc32(token.encode()) % columns
            found[place] = found.get(place, 0.0) + weight * (1 + np.log(count))
        length = sum(value**2 for value in found.values()) ** 0.5
        for place in sorted(found):
            rows.append(row)
            places.append(place)
            values.append(found[place] / length)
    return sparse.csr_array((values, (rows, places)), shape=(len(texts), columns), dtype=np.float64)


def _tokens(text: str) -> Iterable[str]:
    for word in re.findall(r"\w+", text.casefold().replace("_", " ")):
        yield word
        edged = f"<{word}>"
        for start in range(len(edged) - _PART + 1):
            yield "\0" + edged[start : start + _PART]
