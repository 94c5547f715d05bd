"""Points in a file that anything can read: .npz, .csv or .npy, in one of four coordinates; never a pickle."""

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
    """Refuse coordinates that points do not have.

    Args:
        flat: the points are vectors, which are their own coordinates.

    Raises:
        ValueError: there are none of that name, or none of a flat space.
    """
    known = get_args(Coordinates)
    if coordinates not in known:
        raise ValueError(f"coordinates are {', '.join(known)}, not {coordinates!r}")
    if flat and coordinates != "space":
        raise ValueError(f"the points of a Euclidean twin are vectors: it has no {coordinates} coordinates, only space")


def coordinates_of(embedding: Embedding, coordinates: Coordinates = "space") -> NDArray[np.float32]:
    """The points in other coordinates, ``[N, n]``; with ``"lorentz"`` ``[N, n + 1]``, the time first.

    ``"poincare"`` is the ball of radius 1/sqrt(-K), ``"klein"`` the unit ball. They are computed in float64 and then
    rounded, which leaves little of a point far out: its distance from the boundary.

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
    """How many points of a ball float32 has rounded to its boundary, where there are none in truth."""
    if manifold is None or coordinates not in ("poincare", "klein"):
        return 0
    kappa = -float(manifold.K) if coordinates == "poincare" else 1.0
    return int((boundary_gap(torch.from_numpy(points), kappa, -1) <= 0).sum())


def require_target(path: Path) -> None:
    """Fail now if points cannot be written to ``path``.

    Raises:
        ValueError: no file of points has such a name, or there is a folder of that name.
        FileNotFoundError: there is no folder to write it to.
    """
    if path.suffix.lower() not in _WRITERS:
        raise ValueError(f"the name of a file of points ends with one of {', '.join(_WRITERS)}, unlike {str(path)!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file")


def write_points(path: Path, embedding: Embedding, coordinates: Coordinates = "space") -> NDArray[np.float32]:
    """Write the points to ``path``, whole or not at all; its ending says how.

    - ``.npz``: ``points`` float32 ``[N, n]``, ``names`` ``[N]``, where they are known ``labels`` int64 ``[N]`` and
      ``classes`` (what they are called), ``curvature`` (0: flat) and ``coordinates``;
    - ``.csv``: a line a point, ``name,label,x1,...,xn`` under a line that says so; in Lorentz coordinates the time
      ``t`` comes before ``x1``;
    - ``.npy``: the points alone.

    Returns:
        What was written, as :func:`coordinates_of` gives it.

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
    np.savez_compressed(buffer, allow_pickle=False, **arrays)  # names as long as the longest are mostly zeros
    return buffer.getvalue()


def _npy(embedding: Embedding, points: NDArray[np.float32], coordinates: str) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, points, allow_pickle=False)
    return buffer.getvalue()


def _csv(embedding: Embedding, points: NDArray[np.float32], coordinates: str) -> bytes:
    buffer, times = io.StringIO(), ["t"] if coordinates == "lorentz" else []
    writer = csv.writer(buffer)  # its \r\n is what makes it quote names with either character
    writer.writerow(["name", "label", *times, *(f"x{i + 1}" for i in range(points.shape[1] - len(times)))])
    for index, (name, row) in enumerate(zip(embedding.names, points, strict=True)):
        # As text numpy gives no more digits than float32 has.
        writer.writerow([name, embedding.label(index) or "", *row.astype(str).tolist()])
    return buffer.getvalue().encode(errors="backslashreplace")  # a file's name need not be text


_WRITERS: dict[str, Callable[[Embedding, NDArray[np.float32], str], bytes]] = {
    ".npz": _npz,
    ".csv": _csv,
    ".npy": _npy,
}
