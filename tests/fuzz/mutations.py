"""Seeded mutations of files: of their bytes, and of what is inside archives, checksummed chunks and JSON."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

__all__ = ["mutated_files"]

_INTEGERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
_TEXTS = (
    "", "0", "-1", "1e999", "nan", "-inf", "9" * 20, "9" * 400, "0.1", "1,5", '"', "'", "\\", "\n", "\r", "\t", ";",
    "|", "#", "%", "{", "}", "[" * 300, "(" * 300, "\0", "\ufeff", "é", "\u202e", "../../../etc/passwd", "a" * 20_000,
    "None",
)  # fmt: skip
_BYTES = (
    b"\xff",
    b"\x80",
    b"\x00",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\x93NUMPY",
)
_TOKENS = b"0123456789.(){}[]\"',:;|\t\n-+eENRtbduscqrhjX]}U\x80\x81\x85\x86\x87\x8a\x8b\x8c\x8d\x8e\x94\x95\x96\x97"
_NAMES = (
    "",
    "../x",
    "train_mask",
    "edge_index",
    "x",
    "y",
    "indptr",
    "indices",
    "data",
    "shape",
    "format",
    "row",
    "names",
)


def mutated_files(files: dict[str, bytes], rng: random.Random, fixed: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """Return the files of a valid input with one of them changed, or removed, or two of them exchanged."""
    found = dict(files)
    names = sorted(set(files) - fixed)
    name = rng.choice(names)
    if len(names) > 1 and rng.random() < 0.02:
        if rng.random() < 0.5:
            del found[name]
        else:
            found[name] = files[rng.choice(names)]
        return found
    content = files[name]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = _mutated(name, content, rng)
    found[name] = content
    return found


def _mutated(name: str, content: bytes, rng: random.Random) -> bytes:
    suffix = name.rpartition(".")[2].lower()
    structured = {
        "npz": _npz, "npy": _npy, "gz": _gz, "png": _png, "json": _json, "jsonl": _jsonl, "safetensors": _safetensors,
        "pt": _zip, "p": _pickle, "toml": _text, "csv": _text, "txt": _text, "gml": _text, "graphml": _text,
    }.get(suffix)  # fmt: skip
    if structured is None or rng.random() < 0.25:
        return _bytes(content, rng)
    try:
        return structured(content, rng)
    except Exception:  # an earlier mutation has destroyed the structure
        return _bytes(content, rng)


# --- bytes and text ---------------------------------------------------------------------------------------------------


def _bytes(content: bytes, rng: random.Random) -> bytes:
    data, kind = bytearray(content), rng.randrange(9)
    place = rng.randrange(len(data) + 1)
    if rng.random() < 0.3:
        place = min(place, rng.randrange(64))  # headers
    end = min(len(data), place + rng.choice((1, 2, 4, 8, 40, 1000)))
    if kind == 0 and data:
        for _ in range(rng.choice((1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        return bytes(data[:place])
    elif kind == 2:
        del data[place:end]
    elif kind == 3:
        data[place:place] = data[place:end] * rng.choice((1, 3, 50))
    elif kind == 4:
        data[place:end] = rng.randbytes(end - place)
    elif kind == 5:
        form = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
        number = struct.pack(form, rng.choice(_INTEGERS) % 2 ** (8 * struct.calcsize(form)))
        data[place : place + len(number)] = number
    elif kind == 6:
        data[place:end] = rng.choice(_BYTES)
    elif kind == 7 and data:
        data[rng.randrange(len(data))] = rng.choice(_TOKENS)
    else:
        other = rng.randrange(len(data) + 1)
        data[place:end] = data[other : other + end - place]
    return bytes(data)


def _text(content: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(6)
    if kind == 0:  # a number becomes another one
        places = [match.span() for match in re.finditer(rb"-?\d[\d.eE+-]*", content)]
        start, end = rng.choice(places or [(0, 0)])
        new = str(rng.choice(_INTEGERS)) if rng.random() < 0.4 else rng.choice(_TEXTS)
        return content[:start] + new.encode() + content[end:]
    lines = content.split(b"\n")
    line = rng.randrange(len(lines))
    if kind == 1:  # a word of a line
        words = re.split(rb"([,;\s=]+)", lines[line])
        words[rng.randrange(len(words))] = rng.choice(_TEXTS).encode()
        lines[line] = b"".join(words)
    elif kind == 2:
        lines[line] = lines[rng.randrange(len(lines))]
    elif kind == 3:
        lines.insert(line, rng.choice(_TEXTS).encode() + rng.choice((b"", b",", b" 1 2")))
    elif kind == 4:
        rng.shuffle(lines)
    else:
        return content.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig")))
    return b"\n".join(lines)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return _text(content, rng)
    tree = json.loads(content)
    text = json.dumps(_changed_value(tree, rng))
    deep = "[" * rng.choice((50, 5_000)) + "]" * 50
    return text.replace('"@huge"', "9" * 400).replace('"@inf"', "1e999").replace('"@deep"', deep).encode()


def _jsonl(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    line = rng.randrange(len(lines))
    lines[line] = _json(lines[line], rng) if lines[line] and rng.random() < 0.8 else _bytes(lines[line], rng)
    return b"\n".join(lines)


def _changed_value(tree: Any, rng: random.Random) -> Any:
    """Replace, remove or add one value somewhere in a tree."""
    if isinstance(tree, dict | list) and tree and rng.random() < 0.85:
        keys: list[Any] = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key, action = rng.choice(keys), rng.random()
        if action < 0.1:
            del tree[key]
        elif action < 0.15 and isinstance(tree, dict):
            tree[rng.choice([*keys, "new", ""])] = tree.pop(key)
        else:
            tree[key] = _changed_value(tree[key], rng)
        return tree
    if isinstance(tree, int | float) and rng.random() < 0.4:
        return rng.choice((-tree, tree + 1, tree * 2, tree / 2, float(tree), str(tree), [tree]))
    return rng.choice(
        (None, True, False, 0, -1, 1, 3, 1000, 10**6, 2**31, 2**63, 1e-300, 1e300, float("nan"), "", "x", "9" * 400,
         "@huge", "@inf", "@deep", [], {}, [[]], {"": {}}, [1] * 2000, "../../../etc/passwd", "\ud800", "é\n\0",
         "lorentz_gcn")
    )  # fmt: skip


def _safetensors(content: bytes, rng: random.Random) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    header = _json(content[8 : 8 + length], rng)
    length = rng.choice(_INTEGERS) if rng.random() < 0.1 else len(header)
    return struct.pack("<Q", length) + header + content[8 + length :]


# --- arrays -----------------------------------------------------------------------------------------------------------


def _npy(content: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        return _bytes(content, rng)
    length = int.from_bytes(content[8:10], "little")
    header, data = content[10 : 10 + length], content[10 + length :]
    if kind == 1:
        header = _text(header, rng)
    elif kind == 2:
        descr = rng.choice(
            ("<f8", ">f8", "<f2", "<i8", "<u8", "|u1", "|b1", "|O", "<c16", "<U3", "|S0", "<U0", "|V8", "<M8[s]")
        )
        header = re.sub(rb"'descr': '[^']*'", f"'descr': '{descr}'".encode(), header)
    elif kind == 3:
        sizes = [rng.choice((*_INTEGERS, 3, 5, -1)) for _ in range(rng.randrange(4))]
        shape = f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
        header = re.sub(rb"'shape': \([^)]*\)", f"'shape': {shape}".encode(), header)
    else:
        return _saved(_changed_array(np.load(io.BytesIO(content), allow_pickle=False), rng))
    return content[:8] + (len(header) % 2**16).to_bytes(2, "little") + header + data


def _changed_array(array: np.ndarray[Any, Any], rng: random.Random) -> Any:
    kind = rng.randrange(7)
    array = array.copy()
    if kind == 0 and array.size and array.dtype.kind in "iuf":
        value: float = rng.choice((-1, 1, 2, 10**6, 2**31, 2**62, -(2**62)))
        if array.dtype.kind == "f":
            value = rng.choice((float("nan"), float("inf"), -1.0, 1e300, 0.5))
        elif array.dtype.itemsize < 8:
            array = array.astype(np.int64)
        array.reshape(-1)[rng.randrange(array.size)] = value if array.dtype.kind != "u" else abs(value)
        return array
    if kind == 1:
        return array.reshape(-1)[: rng.randrange(array.size + 1)]
    if kind == 2:
        return array.T if array.ndim > 1 else array[:, None]
    if kind == 3 and array.dtype.kind in "iufb":
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(("<f2", "<f4", ">f8", "<i1", ">i8", "<u8", "?", "<c8", "<U5", "<g")))
    if kind == 4:
        return np.concatenate([array.reshape(-1)] * rng.choice((2, 100)))
    if kind == 5:
        return np.zeros(rng.choice(((), (0,), (0, 3), (1,), (2, 2), (3, 4, 5), (70_000,))), array.dtype)
    return array[..., ::-1] if array.ndim else array[None]


def _saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _npz(content: bytes, rng: random.Random) -> bytes:
    return _zip(content, rng, _npy)


def _zip(content: bytes, rng: random.Random, change: Any = None) -> bytes:
    """Change a member of an archive, with a right checksum; or its name; or add or remove one."""
    change = change or _pickle
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, kind = rng.choice(sorted(members)), rng.randrange(12)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[rng.choice(_NAMES) + ".npy"] = members.pop(name)
    elif kind == 2:
        members[rng.choice(("read me.txt", "../x.npy", "x", "a/b.npy", "\n.npy"))] = rng.randbytes(20)
    elif kind == 3:
        members[name] = members[rng.choice(sorted(members))]
    elif kind == 4:
        members[name] = bytes(rng.choice((0, 1000, 10**6)))
    else:
        members[name] = change(members[name], rng)
    file = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
        for own, data in members.items():
            archive.writestr(own, data)
    return file.getvalue()


# --- compressed files, images, pickles --------------------------------------------------------------------------------


def _gz(content: bytes, rng: random.Random) -> bytes:
    plain = gzip.decompress(content)
    inner = bytes(10**6) if rng.random() < 0.05 else _bytes(plain, rng) if rng.random() < 0.5 else _text(plain, rng)
    return gzip.compress(inner, compresslevel=1, mtime=0)


def _png(content: bytes, rng: random.Random) -> bytes:
    """Change a chunk of a PNG file; its checksum is right again."""
    chunks, place = list[tuple[bytes, bytes]](), 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += 12 + length
    index = rng.randrange(len(chunks))
    name, data = chunks[index]
    if name == b"IDAT" and rng.random() < 0.5:
        data = zlib.compress(_bytes(zlib.decompress(data), rng), 1)
    elif name == b"IHDR" and rng.random() < 0.7:
        fields = list(struct.unpack(">IIBBBBB", data))
        fields[rng.randrange(7)] = rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 255))
        fields[rng.randrange(2)] = rng.choice((0, 1, 7, 5_000, 8_192, 13_000, 2**31 - 1, 2**32 - 1))
        data = struct.pack(">IIBBBBB", *fields)
    elif rng.random() < 0.5:
        data = _bytes(data, rng)
    else:
        name = rng.choice((b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"PLTE", b"tRNS", b"acTL", b"fcTL", b"sRGB"))
    chunks.insert(index, (name, data)) if rng.random() < 0.2 else chunks.__setitem__(index, (name, data))
    packed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return content[:8] + b"".join(packed)


_OPCODES = (
    b"B\xff\xff\xff\xff", b"\x8e" + b"\xff" * 4 + b"\0" * 4, b"\x96" + b"\xff" * 4 + b"\0" * 4, b"r\xff\xff\xff\x7f",
    b"j\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f", b"\x95" + b"\xff" * 5 + b"\0" * 3, b"(", b"t", b"\x85" * 5_000, b"]",
    b"a", b"}", b"s", b"u", b"R", b"b", b"\x81", b"0", b"1", b"2", b"N", b"cos\nsystem\n", b"cnumpy\nndarray\n", b"h\0",
    b"q\0", b".", b"cbuiltins\nbytearray\n", b"I4000000000\n", b"L" + b"9" * 400 + b"L\n", b"V\\ud800\n",
    b"cnumpy\ndtype\n", b"e" * 20,
)  # fmt: skip


def _pickle(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return _bytes(content, rng)
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice(_OPCODES) + content[place + rng.choice((0, 0, 1, 2)) :]
