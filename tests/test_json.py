"""JSON and TOML of damaged and hostile files: one line, and no long computation."""

from pathlib import Path

import pytest

from lresnet._json import parse_json, read_json, read_toml


def test_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, -2.5, null, "\u00e9"], "b": 18446744073709551615}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"a": [1, -2.5, None, "\u00e9"], "b": 2**64 - 1}
    (tmp_path / "a.toml").write_text("[a]\nb = 1\n")
    assert read_toml(tmp_path / "a.toml") == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9" * 400, "a whole number of 400 digits; up to 20 are read"),
        ("-" + "9" * 21, "a whole number of 21 digits"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_hostile_json_is_a_value_error(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a = 1\nb = \xff\n", r"a\.toml cannot be read as TOML: line 2 is not UTF-8 text \(byte 0xff\)"),
        (b"a = " + b"[" * 20_000, r"a\.toml cannot be read as TOML: its tables and lists are nested too deeply"),
        (b".".join([b"a"] * 20_000) + b" = 1", r"a\.toml cannot be read as TOML: it has more than 32,768 bytes"),
        (b"a = ", r"a\.toml cannot be read as TOML: Invalid value"),
        (b"a = " + b"9" * 5000, r"a\.toml cannot be read as TOML: "),
    ],
)
def test_hostile_toml_is_one_line_with_the_file(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_toml(tmp_path / "a.toml")
    assert "\n" not in str(caught.value)
