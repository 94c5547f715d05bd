"""Limits on files that may come from strangers. Sizes are compared with them before memory is allocated."""

from __future__ import annotations

__all__ = [
    "ARRAYS",
    "CLOSURE_PAIRS",
    "DOWNLOAD_BYTES",
    "EXPANDED_BYTES",
    "EXPANDED_TEXT_BYTES",
    "EXPANSION",
    "HUB_BYTES",
    "IMAGE_BYTES",
    "IMAGE_PIXELS",
    "JSON_BYTES",
    "LAYERS",
    "LINE_BYTES",
    "LIST_ITEMS",
    "NESTING",
    "NODES",
    "NUMBER_DIGITS",
    "PICKLE_BYTES",
    "SCAN_PIXELS",
    "SIDE",
    "SIDE_PER_ENTRY",
    "SIZE",
    "STATED",
    "TEXT_BYTES",
    "TEXT_EXPANSION",
    "TEXT_ITEMS",
    "TEXT_ITEMS_PER_BYTE",
    "TOML_BYTES",
    "VOCABULARY",
    "WEBP_PIXELS",
    "largest_expansion",
    "largest_side",
    "largest_text",
    "largest_text_array",
]

IMAGE_PIXELS = 2**26
"""Width times height of an image, from its header: 8,192 x 8,192."""

WEBP_PIXELS = 2**25
"""The same for WebP, whose decoder needs twice as much memory as the others."""

IMAGE_BYTES = 2**28
"""Size of one image file."""

EXPANDED_BYTES = 2**25
"""What compressed arrays may expand to in any case. A graph of them may need 32 times as much memory."""

EXPANSION = 400
"""How many times their own size compressed arrays may expand to beyond that. Bags of words expand 150 to 300 times."""

EXPANDED_TEXT_BYTES = 2**20
"""What a gzipped text may expand to in any case. Reading its rows takes seconds per 4 MB, and 100 times the memory."""

TEXT_EXPANSION = 100
"""How many times its own size a gzipped text may expand to beyond that. Tables of mostly zeros expand 80 times."""

SCAN_PIXELS = 2**30
"""Pixels of a JPEG image times the number of its scans, each of which takes the time of all pixels."""

JSON_BYTES = 2**22
"""Size of ``config.json``, ``run.json`` and ``evaluation.json``. Ours have a few kilobytes."""

TOML_BYTES = 2**15
"""Size of a TOML file. Python's reader takes a time that grows with the square of the longest dotted key."""

LINE_BYTES = 2**22
"""Length of one line: an edge, a row of a table, a result."""

NUMBER_DIGITS = 20
"""Digits of a whole number in JSON. 64 bits have 20."""

LAYERS = 64
"""Number of layers that ``config.json`` may request in any case."""

SIZE = 2**20
"""Any other whole number in the ``config.json`` of a converted network, in any case."""

LIST_ITEMS = 1000
"""Length of a list in ``config.json`` in any case."""

NODES = 2**31
"""Number of nodes of a graph: pairs of nodes are numbered in 64 bits."""

CLOSURE_PAIRS = 2**24
"""Pairs of a node and one of its ancestors in a taxonomy. A chain of n nodes has n (n - 1) / 2."""

ARRAYS = 10_000
"""Number of arrays in a ``.npz`` file. Each costs tenths of a millisecond, however small it is."""

TEXT_ITEMS = 2**21
"""Names, classes or text labels in one array. Each becomes an object of Python: tenths of a microsecond, 60 bytes."""

TEXT_ITEMS_PER_BYTE = 10
"""How many of them there may be beyond that for each byte of the file."""

SIDE = 2**22
"""Rows or columns that a sparse matrix may have in any case."""

SIDE_PER_ENTRY = 100
"""Rows or columns per stored entry that a sparse matrix may have beyond that: the others are empty."""

PICKLE_BYTES = 2**28
"""Size of a pickle. The arrays and texts built from one take at most eight times its size."""

NESTING = 32
"""Depth of tuples in a pickle."""

TEXT_BYTES = 2**32
"""Size of a text to train on, all files of a folder together. It is kept in memory."""

VOCABULARY = 2**16
"""Number of tokens of a tokeniser."""

DOWNLOAD_BYTES = 2**25
"""Size of a download for which no size is published."""

HUB_BYTES = 2**33
"""Size of ``model.safetensors`` that is downloaded from the Hugging Face hub."""

STATED = (
    ("pixels of an image (width times height, from the header)", f"{IMAGE_PIXELS:,}; WebP {WEBP_PIXELS:,}"),
    ("pixels of a JPEG image times the number of its scans", f"{SCAN_PIXELS:,}"),
    ("size of an image file", f"{IMAGE_BYTES:,} bytes"),
    (
        "expanded size of compressed arrays (`.npz`, gzipped idx), and of masks and one-hot columns made from a table",
        f"{EXPANDED_BYTES:,} bytes, or {EXPANSION} times the size of the file if that is more",
    ),
    (
        "expanded size of a gzipped text (edge list, table, taxonomy, GraphML, GML, text to train on)",
        f"{EXPANDED_TEXT_BYTES:,} bytes, or {TEXT_EXPANSION} times the size of the file if that is more",
    ),
    ("arrays in a `.npz` file", f"{ARRAYS:,}"),
    (
        "names, classes or text labels in one array of a `.npz` file",
        f"{TEXT_ITEMS:,}, or {TEXT_ITEMS_PER_BYTE} times the size of the file in bytes if that is more",
    ),
    ("size of `config.json`, `run.json` and `evaluation.json`", f"{JSON_BYTES:,} bytes"),
    ("size of a TOML file", f"{TOML_BYTES:,} bytes"),
    ("length of a line (edge list, table, results)", f"{LINE_BYTES:,} bytes"),
    ("digits of a whole number in JSON", f"{NUMBER_DIGITS}"),
    (
        "layers that `config.json` requests (`num_layers`, `depth`, ...)",
        f"{LAYERS}, or the number of tensors in `model.safetensors` if that is more",
    ),
    (
        "other sizes in `config.json`",
        f"{LIST_ITEMS:,} ({SIZE:,} for a converted network), or the number of elements in `model.safetensors` if that "
        "is more",
    ),
    ("length of a list in `config.json`", f"{LIST_ITEMS:,}, or the number of tensors if that is more"),
    ("nodes of a graph", f"{NODES:,}"),
    ("pairs of a node and an ancestor in a taxonomy", f"{CLOSURE_PAIRS:,}"),
    (
        "rows or columns of a sparse matrix in a file",
        f"{SIDE:,}, or {SIDE_PER_ENTRY} times the number of its entries if that is more",
    ),
    ("size of a pickle (published data sets only)", f"{PICKLE_BYTES:,} bytes"),
    ("depth of tuples in a pickle", f"{NESTING}"),
    ("text to train on, all files of a folder together", f"{TEXT_BYTES:,} bytes"),
    ("tokens of a tokeniser", f"{VOCABULARY:,}"),
    ("download of a file whose size is not published", f"{DOWNLOAD_BYTES:,} bytes"),
    (
        "download from the Hugging Face hub",
        f"`model.safetensors` {HUB_BYTES:,} bytes; `config.json` and `README.md` {JSON_BYTES:,} bytes",
    ),
)
"""What is limited, and the limit in words; SECURITY.md shows this table."""


def largest_expansion(size: int) -> int:
    """Return the number of bytes to which compressed arrays in a file of ``size`` bytes may expand.

    Example:
        >>> largest_expansion(1000), largest_expansion(10**9)
        (33554432, 400000000000)
    """
    return max(EXPANDED_BYTES, EXPANSION * size)


def largest_text(size: int) -> int:
    """Return the number of bytes to which a gzipped text of ``size`` bytes may expand.

    Example:
        >>> largest_text(1000), largest_text(10**6)
        (1048576, 100000000)
    """
    return max(EXPANDED_TEXT_BYTES, TEXT_EXPANSION * size)


def largest_text_array(size: int) -> int:
    """Return the number of names, classes or text labels that an array in a file of ``size`` bytes may have.

    Example:
        >>> largest_text_array(1000), largest_text_array(10**6)
        (2097152, 10000000)
    """
    return max(TEXT_ITEMS, TEXT_ITEMS_PER_BYTE * size)


def largest_side(entries: int) -> int:
    """Return the number of rows or columns that a sparse matrix with this number of entries may have.

    Example:
        >>> largest_side(5), largest_side(10**6)
        (4194304, 100000000)
    """
    return max(SIDE, SIDE_PER_ENTRY * entries)
