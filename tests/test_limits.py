"""The limits on files: one module states them, SECURITY.md shows them, and the readers use them."""

import re
from pathlib import Path

from lresnet import _limits

ROOT = Path(__file__).parent.parent


def test_security_md_states_every_limit() -> None:
    section = (ROOT / "SECURITY.md").read_text(encoding="utf-8").split("## Limits")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section, re.MULTILINE)[2:]
    assert rows == [*map(tuple, _limits.STATED)]


def test_every_limit_is_stated_and_used() -> None:
    stated = " ".join(limit for _, limit in _limits.STATED)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "lresnet").rglob("*.py"))
    for name in (name for name in _limits.__all__ if name.isupper() and name != "STATED"):
        value = getattr(_limits, name)
        assert f"{value:,}" in stated, name
        assert len(re.findall(rf"\b{name}\b", source)) > 3, f"{name} is used by no reader"
