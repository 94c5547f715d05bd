"""GCIDE: the GNU Collaborative International Dictionary of English, 40 MB of definitions and quotations."""

from __future__ import annotations

from lresnet.data.source import File, Files, TextSource

__all__ = ["SOURCE", "read"]

SOURCE = TextSource(
    name="gcide",
    summary="GNU Collaborative International Dictionary of English 0.48.5: 39,952,321 bytes, English",
    files=(
        File(
            "texts/gcide.dict.dz",
            None,
            size=13527370,
            sha256="3e6b2cdcbc1b3664c2f1466e3c8e44012e815c4c67fa83fa61f39777cd6e8517",
        ),
    ),
    licence="GPL, version 2 or later",
    citation="GCIDE, the GNU version of the Collaborative International Dictionary of English, edited by Cassidy, from "
    "Porter (ed.): Webster's Revised Unabridged Dictionary, 1913, and Miller: WordNet, 1995",
    note="the Debian package dict-gcide 0.48.5+nmu2: apt-get download dict-gcide; dpkg-deb -x dict-gcide_*.deb gcide; "
    "the file is gcide/usr/share/dictd/gcide.dict.dz",
)


def read(files: Files) -> list[bytes]:
    """Return the dictionary as one document: its licence, then the entries in alphabetical order."""
    from lresnet.data.formats.compressed import read_expanded

    return [read_expanded(files["gcide.dict.dz"])]
