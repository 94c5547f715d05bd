"""Hooks of the documentation site: API pages from ``__all__``, command pages from help texts, docstrings as Markdown.

MkDocs calls the functions ``on_...`` while it builds the site (``mkdocs.yml``, ``hooks``). A page that contains the
comment ``<!-- api: lresnet.nn -->`` shows all public names of that package there; ``<!-- commands -->`` shows the help
text of every verb; ``<!-- file: CHANGELOG.md -->`` shows a file of the repository.
"""

import ast
import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parent.parent


# --- pages ------------------------------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    """Load the search's worker from the site instead of from the network."""
    config.extra["polyfills"] = ["assets/vendor/iframe-worker.js"]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace the comments that stand for the reference and for files of the repository."""
    markdown = re.sub(r"<!-- api: ([\w.]+)(?: without ([\w ]+))? -->", _api, markdown)
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", commands())
    return re.sub(r"<!-- file: (\w+\.md) -->", _file, markdown)  # last: CONTRIBUTING.md shows the other comments


def _file(match: re.Match[str]) -> str:
    """Return a file of the repository's root, with its links into docs/ as the pages in docs/project/ need them."""
    return (ROOT / match[1]).read_text(encoding="utf-8").replace("](docs/", "](../")


def public_names(package: str) -> list[str]:
    """Return ``__all__`` of a package or module of src/ without importing it."""
    path = ROOT / "src" / package.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{source} has no __all__")


def _api(match: re.Match[str]) -> str:
    package, left_out = match[1], (match[2] or "").split()
    names = sorted((name for name in public_names(package) if name not in left_out), key=_classes_first)
    return "\n\n".join(f"::: {package}.{name}" for name in names)


def _classes_first(name: str) -> tuple[int, str]:
    """Sort classes before functions before constants."""
    return (2 if name.isupper() else 0 if name[0].isupper() else 1, name.lower())


def commands() -> str:
    """Return the help text of every verb as Markdown, sub-verbs included."""
    from lresnet.cli import _entries, _find_verb, _overview
    from lresnet.cli.app import App

    parts = []
    for name in [line.split()[0] for line in _overview().splitlines() if line.startswith("  ")]:
        verb = _find_verb(name)
        origin = f" (from `{_entries()[name].module.partition('.')[0]}`)" if name in _entries() else ""
        parts.append(f"## {name}{origin} {{ #{name} }}")
        if isinstance(verb, App):
            parts.append(verb.summary)
            for own in verb.verbs:
                parts += [f"### {name} {own.rstrip('_')}", _help_text(verb.verbs[own], f"lresnet {name} {own}")]
        else:
            parts.append(_help_text(verb, f"lresnet {name}"))
    return "\n\n".join(parts)


class _Utf8Text(io.StringIO):
    encoding = "utf-8"  # tyro draws boxes for this encoding, which help_as_markdown reads


def _help_text(verb: Any, prog: str) -> str:
    """Return one help text: its sentences as Markdown, its options as tables."""
    from lresnet.cli.app import read_call

    out, old = _Utf8Text(), {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS="110", NO_COLOR="1")  # a wider help has two boxes side by side
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            read_call(verb, prog, ["--help"])
    finally:
        for name, value in old.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    return help_as_markdown(out.getvalue())


def help_as_markdown(text: str) -> str:
    """Turn a help text with boxes into Markdown: usage as code, examples in one block, each box as a table."""
    head, *boxes = re.split(r"^(?=╭─)", text, flags=re.MULTILINE)
    parts, is_example = list[str](), False
    for paragraph in re.split(r"\n\s*\n", head.strip()):
        kind, _, rest = paragraph.partition(": ")
        command = f"$ {' '.join(rest.split())}\n```"
        if kind == "Example" and is_example:
            parts[-1] = parts[-1].removesuffix("```") + command
        elif kind in ("usage", "Example"):
            parts.append(f"```console\n{command}")
        else:
            parts.append(" ".join(paragraph.split()))
        is_example = kind == "Example"
    for box in boxes:
        title, rows = _box_rows(box)
        if rows:
            parts += [f"| {title} | |\n|---|---|\n" + "\n".join(f"| `{name}` | {_cell(what)} |" for name, what in rows)]
    return "\n\n".join(parts)


def _box_rows(box: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a box's title, and its rows without the row of ``--help``."""
    lines = box.splitlines()
    title, rows = lines[0].strip("╭─╮ "), list[tuple[str, str]]()
    for line in lines[1:]:
        if line.startswith("╰"):
            break
        content = line.strip().strip("│").rstrip()
        if not content.strip(" ─"):
            if "─" in content:  # a rule below the description of a group of options
                rows.clear()
            continue
        if re.match(r" \S", content):  # a name starts in the first column, its text may follow on the next lines
            name, _, what = content.strip().partition("  ")
            rows.append((name, what.strip()))
        elif rows:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {content.strip()}".strip())
    return title, [(name, what) for name, what in rows if "--help" not in name]


def _cell(text: str) -> str:
    escaped = re.sub(r"([|<*_])", r"\\\1", text)
    return re.sub(r" *\((default: [^()]*(?:\([^()]*\))?[^()]*|required)\)$", r" <small>(\1)</small>", escaped)


# --- docstrings -------------------------------------------------------------------------------------------------------


class PlainMarkdown(griffe.Extension):
    """Docstrings as Markdown: formulas, references and examples, which in the source have the form of Sphinx."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    r"""Return a docstring with Markdown instead of the roles and directives of reStructuredText.

    Example:
        >>> as_markdown(r"The point :math:`\gamma x` of a :class:`Lorentz`.")
        'The point $\\gamma x$ of a `Lorentz`.'
    """
    text = re.sub(r"^( *)\.\. math:: *(.*(?:\n(?:\1 +\S.*))*)", _formula, text, flags=re.MULTILINE)
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    text = re.sub(r":(?:func|class|meth|mod|data|attr):`(~?)([^`]+)`", _reference, text)
    text = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


def _formula(match: re.Match[str]) -> str:
    indent = match[1]
    lines = [line.strip() for line in match[2].splitlines() if line.strip()]
    return "\n".join(["", f"{indent}$$", *(indent + line for line in lines), f"{indent}$$", ""])


def _reference(match: re.Match[str]) -> str:
    short, target = match[1], match[2]
    shown = target.rpartition(".")[2] if short or target.startswith("lresnet.") else target
    if not target.startswith("lresnet."):
        return f"`{shown}`"
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'
