"""JSON and TOML from files that may be damaged or hostile: every error is a ValueError of one line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from lresnet._files import open_file
from lresnet._limits import JSON_BYTES, NUMBER_DIGITS, TOML_BYTES

__all__ = ["parse_json", "read_json", "read_small_text", "read_toml"]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is too large, is not UTF-8 or not JSON, has a number of too many digits, or is nested too
            deeply. The message does not name the file.
    """
    return parse_json(read_small_text(path))


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: See :func:`read_json`.

    Example:
        >>> parse_json('{"seed": 1}')
        {'seed': 1}
    """
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("its objects and lists are nested too deeply") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is too large, not UTF-8 or not TOML; the message names it.
    """
    try:
        return tomllib.loads(read_small_text(path, TOML_BYTES))
    except RecursionError:
        raise ValueError(f"{path} cannot be read as TOML: its tables and lists are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as TOML: {error}") from error


def read_small_text(path: Path, limit: int = JSON_BYTES) -> str:
    """Return the content of a UTF-8 file of limited size.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is too large or not UTF-8; the message has the line, but not the path.
    """
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it has more than {limit:,} bytes, the limit for such a file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8 text (byte {content[error.start]:#04x})") from None


def _whole_number(digits: str) -> int:
    if len(digits.lstrip("-")) > NUMBER_DIGITS:
        raise ValueError(f"it has a whole number of {len(digits.lstrip('-')):,} digits; up to {NUMBER_DIGITS} are read")
    return int(digits)
