"""Notebooks of examples: the cells of a script, split at its `# %%` lines.

`python -m tests.examples.notebooks` writes examples/notebooks/*.ipynb. A test checks that they are up to date.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = ("own_block", "link_prediction")

# A notebook has no command line: its options stand in the list.
PARSE, PARSE_IN_NOTEBOOK = "args = parser.parse_args()", "args = parser.parse_args([])"
# A last cell that shows the picture which the script writes.
PICTURES = {"link_prediction": 'from PIL import Image\n\nImage.open("link_prediction.png").copy()'}


def code_cells(name: str) -> list[str]:
    """Return the code cells of a notebook."""
    return ["".join(cell["source"]) for cell in notebook(name)["cells"] if cell["cell_type"] == "code"]


def notebook(name: str) -> dict[str, Any]:
    """Return the notebook of the script ``name``, as the JSON of nbformat 4.5."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    header = ast.get_docstring(ast.parse(text))
    assert header is not None
    title, _, rest = header.partition("\n")
    cells = [("markdown", f"# {title}\n{rest}")]
    for marked in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        kind, _, body = marked.partition("\n")
        if kind.strip() == "[markdown]":
            lines = body.strip().splitlines()
            cells.append(("markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)))
        else:
            cells.append(("code", body.strip().replace(PARSE, PARSE_IN_NOTEBOOK)))
    if name in PICTURES:
        cells.append(("code", PICTURES[name]))
    return {
        "cells": [_cell(number, *cell) for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def stored(name: str) -> str:
    """Return the text of the file examples/notebooks/``name``.ipynb."""
    return json.dumps(notebook(name), indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    extra: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    source = text.splitlines(keepends=True)
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source, **extra}


def main() -> None:
    """Write all notebooks."""
    for name in NOTEBOOKS:
        (EXAMPLES / "notebooks" / f"{name}.ipynb").write_text(stored(name), encoding="utf-8")


if __name__ == "__main__":
    main()
