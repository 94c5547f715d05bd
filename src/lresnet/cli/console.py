"""Functions that several verbs share: progress bars, tables and notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from lresnet.runs.embedding import Embedding

__all__ = [
    "given_images",
    "image_notes",
    "point_count",
    "print_embedding_notes",
    "print_skipped",
    "print_table",
    "progress_bars",
    "skipped_lines",
    "space_name",
]


def progress_bars() -> Progress:
    """Return bars with counts, the remaining time (at the end the elapsed time) and the field ``state``."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=12),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        progress.TextColumn("{task.fields[state]}"),
        speed_estimate_period=1800,  # a run may take minutes, longer than rich's default of 30 seconds
    )


def skipped_lines(skipped: Iterable[tuple[Path, str]]) -> Iterator[str]:
    """Yield one line for each file that could not be read, with the reason."""
    from lresnet.runs.names import one_line

    for file, reason in skipped:
        yield f"  {one_line(str(file))}: {one_line(reason)}"


def print_skipped(skipped: Iterable[tuple[Path, str]]) -> None:
    """Print the files that could not be read to the standard error."""
    for line in skipped_lines(skipped):
        print(line, file=sys.stderr)


def image_notes(count: int, size: tuple[int, int], resized: int, skipped: int) -> Iterator[str]:
    """Yield notes on how a user's image files were read, one line each.

    Args:
        count: Number of images that were read.
        size: Width and height that the network takes.
        resized: Number of images with another size.
        skipped: Number of files that could not be read.

    Example:
        >>> list(image_notes(3, (8, 8), 0, 1))
        ['1 of 4 files could not be read as images']
    """
    width, height = size
    if resized:
        yield f"{resized} of {count} images had another size than {width} x {height}: cropped, then resized"
    if skipped:
        yield f"{skipped} of {count + skipped} files could not be read as images"


def given_images(images: tuple[Path, ...] | None) -> tuple[Path, ...]:
    """Return the paths after ``--images``; the option without paths is an error, as it may be a mistake."""
    if images == ():
        raise ValueError("--images names no image and no folder; leave it out for the test images")
    return images or ()


def print_embedding_notes(embedding: Embedding, verbose: bool) -> None:
    """Print to the standard error how the image files of an embedding were read; ``verbose`` lists skipped files."""
    if embedding.size is not None:
        for note in image_notes(len(embedding), embedding.size, embedding.resized, len(embedding.skipped)):
            print(note, file=sys.stderr)
    if verbose:
        print_skipped(embedding.skipped)


def point_count(embedding: Embedding) -> str:
    """Return number, kind and source of the points, e.g. ``"1,044 nodes of disease_tree"``."""
    from lresnet.runs.names import one_line

    plural = "" if len(embedding) == 1 else "s"
    source = "" if embedding.kind == "image" else f" of {one_line(embedding.source)}"
    return f"{len(embedding):,} {embedding.kind}{plural}{source}"


def space_name(embedding: Embedding) -> str:
    """Return the curvature of the space, or ``"flat space"``."""
    return "flat space" if embedding.manifold is None else f"curvature {embedding.curvature:g}"


def print_table(table: object, text: str, json: str | None, csv: str | None = None, rows: str = "") -> None:
    """Print a table, and write the same for machines.

    Args:
        table: What the terminal shows; None: nothing.
        text: The same as JSON.
        json: File for the JSON; ``-`` prints it instead of the table.
        csv: File for ``rows``; ``-`` prints them instead of the table.
        rows: The same as CSV.
    """
    from rich.console import Console

    from lresnet._files import write_atomically

    for target, content in ((json, text + "\n"), (csv, rows)):
        if target not in (None, "-"):
            write_atomically(Path(str(target)), content.encode())
    if "-" in (json, csv):
        print(text if json == "-" else rows, end="\n" if json == "-" else "")
    elif table is not None:
        Console().print(table)
