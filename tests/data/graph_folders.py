"""A small set of graphs, rings and stars in turn, as the two kinds of folders that are read."""

from pathlib import Path

COUNT = 24


def _edges(number: int) -> tuple[int, list[tuple[int, int]]]:
    nodes = 5 + number % 4
    ring = [(node, (node + 1) % nodes) for node in range(nodes)]
    return nodes, ring if number % 2 == 0 else [(0, node) for node in range(1, nodes)]


def write_graph_files(folder: Path) -> Path:
    """Write one edge list per graph and ``labels.csv``; return the folder."""
    folder.mkdir(exist_ok=True)
    for number in range(COUNT):
        _, edges = _edges(number)
        (folder / f"g{number}.csv").write_text("".join(f"{i},{j}\n" for i, j in edges))
    rows = [f"g{number}.csv,{'ring' if number % 2 == 0 else 'star'}\n" for number in range(COUNT)]
    (folder / "labels.csv").write_text("file,label\n" + "".join(rows))
    return folder


def write_tu_files(folder: Path) -> Path:
    """Write the same graphs in the format of the TU data sets, with the labels 1 and -1; return the folder."""
    folder.mkdir(exist_ok=True)
    pairs, owner, start = list[str](), list[str](), 1
    for number in range(COUNT):
        nodes, edges = _edges(number)
        pairs += [f"{start + a}, {start + b}\n" for i, j in edges for a, b in ((i, j), (j, i))]
        owner += [f"{number + 1}\n"] * nodes
        start += nodes
    (folder / "X_A.txt").write_text("".join(pairs))
    (folder / "X_graph_indicator.txt").write_text("".join(owner))
    (folder / "X_graph_labels.txt").write_text("".join(f"{1 if n % 2 == 0 else -1}\n" for n in range(COUNT)))
    return folder
