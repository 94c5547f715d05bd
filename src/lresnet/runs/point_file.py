"""Files of embeddings: points as .npz, .csv or .npy, in one of four coordinate systems; never a pickle."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from lresnet._files import write_atomically
from lresnet.geometry import Lorentz
from lresnet.geometry.charts import boundary_gap
from lresnet.runs.embedding import Embedding

__all__ = ["Coordinates", "coordinates_of", "on_the_boundary", "require_coordinates", "require_target", "write_points"]

Coordinates = Literal["space", "lorentz", "poincare", "klein"]


def require_coordinates(coordinates: str, *, flat: bool) -> None:
    """Raise an error for a coordinate system that the points do not have.

    Args:
        flat: whether the points are vectors of a Euclidean network, which have space coordinates only.

    Raises:
        ValueError: the name is unknown, or the points are vectors.
    """
    known = get_args(Coordinates)
    if coordinates not in known:
        raise ValueError(f"coordinates must be {', '.join(known)}, got {coordinates!r}")
    if flat and coordinates != "space":
        raise ValueError(
            f"the points of a Euclidean network are vectors; they have space coordinates, not {coordinates}"
        )


def coordinates_of(embedding: Embedding, coordinates: Coordinates = "space") -> NDArray[np.float32]:
    """Return the points in other coordinates, ``[N, n]``, or ``[N, n + 1]`` with the time first for ``"lorentz"``.

    ``"poincare"`` is the ball of radius 1/sqrt(-K), ``"klein"`` the unit ball. They are computed in float64 and rounded
    to float32, which loses the distance to the boundary of points that are far from the origin.

    Raises:
        ValueError: see :func:`require_coordinates`.

    Example:
        >>> one = Embedding("a point", "node", torch.tensor([[3.0, 4.0]]), Lorentz(-1.0), ("a",))
        >>> coordinates_of(one, "lorentz")
        array([[5.0990195, 3.       , 4.       ]], dtype=float32)
    """
    manifold = embedding.manifold
    require_coordinates(coordinates, flat=manifold is None)
    if manifold is None or coordinates == "space":
        return np.asarray(embedding.points.numpy(), dtype=np.float32)
    maps = {"lorentz": manifold.lift, "poincare": manifold.to_poincare, "klein": manifold.to_klein}
    return np.asarray(maps[coordinates](embedding.points.double()).float().numpy())


def on_the_boundary(points: NDArray[np.float32], manifold: Lorentz | None, coordinates: Coordinates) -> int:
    """Count the points that float32 has rounded to the boundary of the ball, where no point lies."""
    if manifold is None or coordinates not in ("poincare", "klein"):
        return 0
    kappa = -float(manifold.K) if coordinates == "poincare" else 1.0
    return int((boundary_gap(torch.from_numpy(points), kappa, -1) <= 0).sum())


def require_target(path: Path) -> None:
    """Raise an error if points cannot be written to ``path``, before any work is done.

    Raises:
        ValueError: the ending is unknown, or the path is a folder.
        FileNotFoundError: the parent folder does not exist.
    """
    if path.suffix.lower() not in _WRITERS:
        raise ValueError(f"a file of points must end with one of {', '.join(_WRITERS)}, got {str(path)!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; create it, or write {path.name} elsewhere")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file")


def write_points(path: Path, embedding: Embedding, coordinates: Coordinates = "space") -> NDArray[np.float32]:
    """Write the points to ``path``, completely or not at all. The ending decides the format.

    - ``.npz``: ``points`` float32 ``[N, n]``, ``names`` ``[N]``, if known ``labels`` int64 ``[N]`` and their names
      ``classes``, ``curvature`` (0 for vectors) and ``coordinates``;
    - ``.csv``: a header ``name,label,x1,...,xn``, then one line per point; in Lorentz coordinates the time ``t`` comes
      before ``x1``;
    - ``.npy``: the points only.

    Returns:
        The points as written, see :func:`coordinates_of`.

    Raises:
        ValueError, OSError: see :func:`require_target` and :func:`require_coordinates`.
    """
    require_target(path)
    points = coordinates_of(embedding, coordinates)
    write_atomically(path, _WRITERS[path.suffix.lower()](embedding, points, coordinates))
    return points


def _npz(embedding: Embedding, points: NDArray[np.float32], coordinates: str) -> bytes:
    arrays: dict[str, Any] = {"points": points, "names": np.array(embedding.names, dtype=np.str_)}
    if embedding.labels is not None:
        arrays |= {"labels": embedding.labels.numpy(), "classes": np.array(embedding.classes, dtype=np.str_)}
    arrays |= {"curvature": np.float64(embedding.curvature), "coordinates": np.array(coordinates)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)  # names are padded to the longest
    return buffer.getvalue()


def _npy(embedding: Embedding, points: NDArray[np.float32], coordinates: str) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, points, allow_pickle=False)
    return buffer.getvalue()


def _csv(embedding: Embedding, points: NDArray[np.float32], coordinates: str) -> bytes:
    buffer, times = io.StringIO(), ["t"] if coordinates == "lorentz" else []
    writer = csv.writer(buffer)  # its \r\n makes it quote names that hold either character
    writer.writerow(["name", "label", *times, *(f"x{i + 1}" for i in range(points.shape[1] - len(times)))])
    for index, (name, row) in enumerate(zip(embedding.names, points, strict=True)):
        # numpy writes no more digits than float32 has.
        writer.writerow([name, embedding.label(index) or "", *row.astype(str).tolist()])
    return buffer.getvalue().encode(errors="backslashreplace")  # a file name need not be valid text


_WRITERS: dict[str, Callable[[Embedding, NDArray[np.float32], str], bytes]] = {
    ".npz": _npz,
    ".csv": _csv,
    ".npy": _npy,
}
