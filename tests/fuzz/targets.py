"""Every reader of files with small valid inputs, from which the fuzzers start."""

from __future__ import annotations

import atexit
import contextlib
import gzip
import io
import itertools
import json
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import sparse

import lresnet
from lresnet._json import read_toml
from lresnet.cli import main
from lresnet.convert import lorentzify
from lresnet.data import Tokenizer, load_images, read_graph, read_graphs, text_task
from lresnet.data.files import source_files
from lresnet.data.formats.idx import read_idx_images
from lresnet.data.formats.image_folder import read_image_folder
from lresnet.data.formats.records import read_image_records
from lresnet.data.formats.space_file import read_space
from lresnet.data.formats.split_file import read_link_split, read_node_split
from lresnet.data.formats.unlabelled_images import read_unlabelled
from lresnet.data.formats.unpickle import read_pickle
from lresnet.data.registry import DATASETS, reader
from lresnet.data.taxonomy import read_taxonomy, read_texts
from lresnet.data.tokenizer import train_bpe
from lresnet.models import MODELS
from lresnet.plots.curves import read_curve
from lresnet.runs import Run, fit
from lresnet.runs.graph_search import read_trials
from lresnet.runs.own_network import load_weights, save_weights
from lresnet.runs.presets import run_config
from lresnet.runs.record import read_evaluation, read_record
from lresnet.runs.report import computing_time, read_report, report_json
from lresnet.train.checkpoint import load_checkpoint, save_checkpoint
from lresnet.train.results import read_results
from lresnet_paper import ancestors, hierarchy_images
from lresnet_paper.completion import study
from lresnet_paper.hierarchy_images import read_plan
from lresnet_paper.plan import recipe_notes
from lresnet_paper.results import aggregate, in_order, read_runs
from tests.data import official
from tests.data.graph_folders import write_graph_files, write_tu_files
from tests.data.test_records import Toy
from tests.fuzz.workers import Target

__all__ = ["all_targets"]

Files = dict[str, bytes]
_RNG = np.random.default_rng(0)
_EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]


def all_targets() -> dict[str, Target]:
    """Return the targets by name; their valid inputs are written now, which takes a second or two."""
    found = [*_text_targets(), *_array_targets(), *_data_set_targets(), *_image_targets(), *_run_targets()]
    named = {target.name: target for target in found}
    return named | {target.name: target for target in _command_targets(named)}


def _command_targets(readers: Mapping[str, Target]) -> list[Target]:
    """Return verbs of the command line, which get the inputs of several readers."""

    def inputs(*names: str) -> list[Mapping[str, bytes]]:
        return [files for name in names for files in readers[name].inputs]

    train = (*_TRAIN, "--search", "off", "--method", "space")
    pairs = [(node, (node + step) % 30) for step in (1, 7) for node in range(30)]
    rows = b"".join(b"%d,%d\n" % pair for pair in pairs)
    labels = np.arange(30) % 2
    arrays = {"edge_index": np.array(pairs).T, "x": _RNG.standard_normal((30, 3)), "y": labels}
    folder = {
        "edges.csv": rows,
        "features.csv": b"node,a\n" + b"".join(b"%d,%d\n" % (node, node % 5) for node in range(30)),
        "labels.csv": b"node,label\n" + b"".join(b"%d,c%d\n" % (node, label) for node, label in enumerate(labels)),
    }
    files = [{"graph.csv": rows}, {"graph.npz": _npz(arrays)}]
    # A graph that is too small for a split is refused without the name of the file, which the command has.
    on_any = {"title": "lresnet: error", "weight": 0.3}
    return [
        Target("lresnet delta", inputs("space (.npy, .npz)"), _first(_command("delta", "{file}")), weight=2),
        Target("lresnet report", inputs("run.json and evaluation.json"), _command("report", "{file}"), weight=0.5),
        Target("lresnet train, one file", files, _first(_command(*train, "{file}")), **on_any),
        Target("lresnet train, a folder", [folder], _command(*train, "{file}"), **on_any),
        Target("lresnet train, a taxonomy", _TAXONOMIES, _first(_command(*_TRAIN, *_HIERARCHY, "{file}")), **on_any),
        Target("lresnet train, a text", _TEXTS, _command(*_TRAIN, *_TEXT, "{file}"), **on_any),
        *_commands_on_runs(),
    ]


def _commands_on_runs() -> list[Target]:
    """Return the verbs that read the folder of a run on a taxonomy or on a text, with and without its checksums."""
    data = Path(tempfile.mkdtemp(prefix="fuzz-data-"))  # a run on a taxonomy reads it again
    atexit.register(shutil.rmtree, data, ignore_errors=True)
    folders = []
    for (name, content), options in ((*_TAXONOMIES[0].items(), _HIERARCHY), (*_TEXTS[0].items(), _TEXT)):
        (data / name).write_bytes(content)
        _command(*_TRAIN, *options, "{file}")(data / name)
        files = {name: content for name, content in _files(data / "run").items() if "checkpoint" not in name}
        shutil.rmtree(data / "run")
        folders.append([files, files | {"run.json": _without_checksums(files["run.json"])}])
    taxonomy, text = folders
    parents = _command("predict", "{file}", "--parents", "new kind", "--top", "3", "--device", "cpu")
    # The messages about the data name its file, and not the run.
    on_any = {"title": str(data), "weight": 0.5}
    return [
        Target("lresnet ancestors", taxonomy, _command("ancestors", "{file}", "kind 5", "--device", "cpu"), **on_any),
        Target("lresnet predict --parents", taxonomy, parents, **on_any),
        Target("lresnet generate", text, _command("generate", "{file}", "--tokens", "3", "--device", "cpu"), **on_any),
    ]


def _command(*words: str) -> Callable[[Path], object]:
    """Return a function that runs a command on a path; a wrong call becomes the error that it prints."""

    def run(path: Path) -> int:
        output, errors = io.StringIO(), io.StringIO()
        filled = [word.format(file=path, folder=path.parent) for word in words]
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = main(filled)
        if code:
            raise ValueError(errors.getvalue().removesuffix("\n").rpartition("\nlresnet: error: ")[2])
        return code

    return run


_NODES = range(1, 40)
_TAXONOMIES: list[Mapping[str, bytes]] = [
    {"t.csv": b"child,parent,text\n" + b"".join(b"kind %d,kind %d,a text %d\n" % (n, n // 2, n % 5) for n in _NODES)},
    {"t.txt": b"root\n" + b"".join(b" " * (1 + n % 4) + b"kind %d\n" % n for n in _NODES)},
]
_TRAIN = ("train", "--epochs", "1", "--device", "cpu", "--out", "{folder}/run")
_HIERARCHY = ("--task", "hierarchy", "--search", "off", "--hidden", "4")
_SONG = b"".join(b"%d green bottles\n" % number for number in range(20))
_TEXTS: list[Mapping[str, bytes]] = [{"a.txt": _SONG}, {"a.txt.gz": gzip.compress(_SONG, mtime=0), "b.txt": _SONG}]
_TEXT = (
    *("--task", "text", "--tokens", "bpe", "--vocab-size", "260", "--context", "4"),
    *("--layers", "1", "--width", "16", "--heads", "2"),
)


def _text_targets() -> list[Target]:
    rows = b"".join(b"%d,%d\n" % pair for pair in _EDGES)
    named = b'source,target,weight\nOslo,Rome,2\n"Rome, IT",Bern,0.5\nBern,Oslo,1e-3\nOslo,Bern,3\n'
    edge_lists = [
        {"graph.csv": rows},
        {"graph.csv": named},
        {"graph.csv": "# cities\nKøln;Århus;1\nÅrhus;Bern;2\n".encode("latin-1")},
        {"graph.tsv": rows.replace(b",", b"\t")},
        {"graph.txt": b"% matrix market\n" + rows.replace(b",", b" ")},
        {"graph.edgelist": b"a b {'weight': 2.0}\nb c {'weight': 0.5}\n"},
        {"graph.txt": "Å B\r\nB C\r\n".encode("utf-16")},
        {"graph.csv.gz": gzip.compress(named, mtime=0)},
    ]
    folder = {
        "edges.csv": rows,
        "features.csv": b"node,a,b\n" + b"".join(b"%d,%d,0.5\n" % (node, node * node) for node in range(5)),
        "labels.csv": b"node,label\n0,cat\n1,dog\n2,cat\n3,dog\n4,cat\n",
        "splits.csv": b"0,train\n1,train\n2,val\n3,test\n4,test\n",
    }
    graphml = (
        b'<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="w" for="edge" '
        b'attr.name="weight" attr.type="double"/><graph edgedefault="undirected"><node id="a"/><node id="b"/>'
        b'<node id="c"/>'
        b'<edge source="a" target="b"><data key="w">2.5</data></edge><edge source="b" target="c"/></graph></graphml>'
    )
    gml = b'graph [\n node [ id 0 label "a" ]\n node [ id 1 label "b" ]\n edge [ source 0 target 1 weight 2 ]\n]\n'
    splits = {"nodes.csv": b"node,part\n0,train\n1,val\n2,test\n", "links.csv": b"0,1,train\n1,2,val\n2,3,test\n"}
    graph = read_graph((np.array(_EDGES).T, 5))
    with tempfile.TemporaryDirectory() as root:
        sets = [_files(write(Path(root, str(n)))) for n, write in enumerate((write_graph_files, write_tu_files))]

    def read_splits(folder: Path) -> None:
        for name, read in (("nodes.csv", read_node_split), ("links.csv", read_link_split)):
            if (folder / name).exists():
                read(folder / name, graph)

    outline = b"animal\n\tdog\n\t\tpoodle\n\tcat\nplant\n\tmoss\n"
    taxonomies = [
        {"t.csv": b'child,parent,text\ndog,animal,barks\ncat,animal,\n"poodle, toy",dog,small\n'},
        {"t.csv": b"parent;child\n;animal\nanimal;dog\nanimal;cat\ndog;poodle\n"},
        {"t.tsv": "Hund\tTier\nPudel\tHund\nPudel\tHaustier\nHaustier\tTier\n".encode("utf-16")},
        {"t.txt": outline},
        {"t.txt": b"# kinds\nanimal\n  dog\n    poodle\n  cat\n"},
        {"t.csv.gz": gzip.compress(b"dog,animal\ncat,animal\n", mtime=0)},
    ]
    named_texts = {"texts.csv": b"dog,it barks\ncat,it sleeps\n"}

    tokenizers = [Tokenizer(), train_bpe(_SONG, 262, end=True)]
    plan = read_plan
    toml = {"plan.toml": Path(plan.__code__.co_filename).with_suffix(".toml").read_bytes()}
    return [
        Target("edge list", edge_lists, _first(read_graph), weight=3),
        Target("graph folder", [folder], read_graph, weight=3),
        Target("GraphML and GML", [{"g.graphml": graphml}, {"g.gml": gml}, {"g.gml.gz": gzip.compress(gml, mtime=0)}],
               _first(read_graph), weight=2),
        Target("graph set", sets, read_graphs),
        Target("taxonomy", taxonomies, _first(read_taxonomy), weight=3),
        Target("texts of names", [named_texts], _first(lambda path: read_texts(path, ("dog", "cat", "animal")))),
        Target("text", _TEXTS, lambda folder: text_task(folder, context=2)),
        Target("tokenizer.json", [{"tokenizer.json": one.to_json().encode()} for one in tokenizers],
               _first(Tokenizer.read)),
        Target("split file", [splits], read_splits),
        Target("TOML", [toml, {"a.toml": b'[table]\nnumber = 1\ntext = "a"\nlist = [1, 2.5, {a = 1}]\n'}],
               _first(read_toml)),
    ]  # fmt: skip


def _array_targets() -> list[Target]:
    matrix = sparse.csr_array(np.eye(5) + np.eye(5, k=1) + np.eye(5, k=-1))
    features = _RNG.standard_normal((5, 3))
    arrays = {
        "edge_index": np.array(_EDGES).T, "x": features, "y": np.array([0, 1, 0, 1, 0]),
        "names": np.array(list("abcde")),
        "train_mask": np.array([1, 1, 0, 0, 0], bool), "val_mask": np.array([0, 0, 1, 0, 0], bool),
        "test_mask": np.array([0, 0, 0, 1, 1], bool), "edge_weight": np.arange(1.0, 7), "num_nodes": np.array(5),
    }  # fmt: skip
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    both = {f"{prefix}{key}": value for prefix in ("adj_", "attr_") for key, value in parts.items()}
    graphs = [{"graph.npz": content} for content in (_npz(arrays), _npz(both), *map(_sparse, (matrix, matrix.tocoo())))]
    edges = b"".join(b"%d,%d\n" % pair for pair in _EDGES)
    given = [
        {"edges.csv": edges, "features.npy": _npy(features), "labels.npy": _npy(arrays["y"])},
        {"edges.csv": edges, "features.npz": _sparse(matrix), "labels.npz": _npz({"y": arrays["y"]})},
        {"edges.npz": _npz(arrays), "splits.npz": _npz({"train": np.array([0, 1]), "test": np.array([2, 3])})},
    ]
    distances = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    spaces = [
        {"space.npy": _npy(distances)}, {"space.npy": _npy(np.asfortranarray(distances.astype(">i4")))},
        {"space.npz": _npz({"d": distances})}, {"space.npz": _sparse(matrix)}, {"space.npz": _sparse(matrix.tocsc())},
        {"space.npz": _npz(arrays)},
    ]  # fmt: skip
    images = _RNG.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    labelled = {
        "train_images": images,
        "train_labels": np.arange(6) % 2,
        "test_images": images,
        "test_labels": np.zeros(6, int),
    }
    return [
        Target("graph as .npz", graphs, _first(read_graph), weight=3),
        Target("features and labels as arrays", given, read_graph, weight=3),
        Target("space (.npy, .npz)", spaces, _first(read_space), weight=3),
        Target("labelled images as .npz", [{"a.npz": _npz(labelled)}], _first(load_images), weight=2),
        Target("images as .npz", [{"a.npz": _npz({"images": images})}], _first(_unlabelled)),
    ]


def _data_set_targets() -> list[Target]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        official.write_disease(root, "disease_lp", nodes=20)
        official.write_airport(root, nodes=20)
        official.write_planetoid(root, "cora", nodes=700, test=20, train=5)
        official.write_heterophilous(root, "actor", nodes=20)
        official.write_wordnet(root, nodes=20)
        groups = {name: _files(root / name) for name in ("hgcn", "planetoid", "heterophilous", "wordnet")}
        toy = Toy()
        archive = toy.archive()
        packed, unpacked = {"toy-binary.tar.gz": archive}, {f"toy-bin/{k}": v.tobytes() for k, v in toy.rows.items()}
    airport = {"airport.p": groups["hgcn"].pop("airport.p")}
    values: list[tuple[Any, tuple[int, ...]]] = [
        (np.arange(6.0).reshape(2, 3), (2, 4, 5)),
        ({"a": [1, 2.5, ("b", None)]}, (0, 2, 4, 5)),
        (sparse.csr_matrix(np.eye(3)), (2, 4)),
    ]
    pickles = [{"a.p": pickle.dumps(value, protocol)} for value, protocols in values for protocol in protocols]

    def read_set(name: str, files: Files) -> Target:
        def read(folder: Path) -> object:
            return reader(DATASETS[name])({file: folder / file for file in files})

        return Target(name, [files], read, title=name, weight=2)

    def read_records(folder: Path) -> object:
        source = toy.source(archive)
        if (folder / "toy-bin").is_dir():
            return read_image_records(source, {source.files[0].name: folder / "toy-bin"})
        return read_image_records(source, source_files(source, folder))

    return [
        Target("pickle", pickles, _first(read_pickle), weight=4),
        read_set("airport", airport),
        read_set("cora", groups["planetoid"]),
        read_set("disease_lp", groups["hgcn"]),
        read_set("actor", groups["heterophilous"]),
        read_set("wordnet", groups["wordnet"]),
        Target("image records", [unpacked, packed], read_records),
    ]  # fmt: skip


def _image_targets() -> list[Target]:
    image = Image.fromarray(_RNG.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    formats: list[tuple[str, Image.Image, dict[str, Any]]] = [
        ("a.png", image, {}), ("a.png", image.convert("P"), {"transparency": 0}), ("a.png", image.convert("LA"), {}),
        ("a.jpg", image, {"exif": exif}), ("a.jpg", image.convert("L"), {"progressive": True}), ("a.bmp", image, {}),
        ("a.gif", image.convert("P"), {}), ("a.webp", image, {}), ("a.webp", image, {"lossless": True}),
        ("a.ppm", image, {}), ("a.tiff", image, {}), ("a.tiff", image, {"compression": "tiff_lzw"}),
        ("a.tif", image, {"compression": "jpeg"}),
    ]  # fmt: skip
    single = [{name: _encoded(one, name, options)} for name, one, options in formats]
    folder = {
        f"{label}/{number}.png": _encoded(image.rotate(90 * number + 45 * (label == "dog")), "a.png", {})
        for label in ("cat", "dog")
        for number in range(3)
    }
    pixels = _RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)
    idx = bytes.fromhex("00000803") + np.array(pixels.shape, ">u4").tobytes() + pixels.tobytes()
    return [
        Target("image file", single, _unlabelled, weight=5),
        Target("image folder", [folder], lambda path: read_image_folder(path, 8, workers=0)),
        Target("idx", [{"images": idx}, {"images.gz": gzip.compress(idx, mtime=0)}], _first(_idx)),
    ]  # fmt: skip


def _run_targets() -> list[Target]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        config = run_config("disease_tree/lp", settings={"epochs": 1, "hidden": 4})
        fit(config.task, config.model, config.train, out=root / "run", device="cpu").evaluate()
        run = _files(root / "run")
        models = []
        for name in MODELS:
            if name not in _LARGER:
                lresnet.create_model(name, **_sizes(name)).save_pretrained(root / name)
                models.append(_files(root / name))
        flat = torch.nn.Sequential(torch.nn.TransformerEncoderLayer(8, 2, 8, norm_first=True))
        lorentzify(flat, curvature=-0.1).save_pretrained(root / "converted")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its dropout of attention weights is not applied
            lorentzify(flat, curvature=-0.1, attention="lorentz").save_pretrained(root / "attention")
        converted = [_files(root / name) for name in ("converted", "attention")]
        own = torch.nn.Linear(3, 2)
        save_weights(own, root / "own")
        state = {
            "epoch": 3,
            "model": own.state_dict(),
            "best": 0.5,
            "names": ["a", "b"],
            "random": torch.get_rng_state(),
        }
        save_checkpoint(root / "checkpoint.pt", state)
        plain = io.BytesIO()
        torch.save(state, plain)
        checkpoints = [{"checkpoint.pt": (root / "checkpoint.pt").read_bytes()}, {"checkpoint.pt": plain.getvalue()}]
        weights = _files(root / "own")
    records = {name: content for name, content in run.items() if name.endswith(".json") and "/" not in name}
    curve = {name: content for name, content in run.items() if name == "curve.jsonl"}
    unverified = records | {name: _without_checksums(records[name]) for name in ("run.json", "evaluation.json")}
    line = {
        "table": "gnn", "cell": "cora/nc", "method": "lorentz", "protocol": "legacy", "seed": 0, "split": None,
        "stage": "final", "config": {"lr": 0.01}, "value": 81.5, "validation": 80.0, "seconds": 3.5,
        "command": "lresnet", "hardware": "CPU", "versions": {"torch": "2.13"},
    }  # fmt: skip
    curvature = line | {"table": "curvature", "cell": "disease/lp", "config": {"curvature": -0.5}}
    lines = [line, line | {"seed": 1}, curvature, line | {"method": "none", "stage": "search"}]
    studies = [{f"{name}.jsonl": _lines(_study_lines(name))} for name in _STUDIES]
    trial = {"number": 1, "settings": {"lr": 0.1}, "validation": 80.5, "epochs": 3, "seconds": 0.5, "data": "ab"}

    return [
        Target("run.json and evaluation.json", [records, unverified], _read_records, weight=4),
        Target("curve", [{**records, **curve}], _read_curve, fixed=frozenset(records)),
        Target("run folder", [run], lambda folder: Run.open(folder, device="cpu"), weight=1),
        Target("results", [{"gnn.jsonl": _lines(lines)}], _read_results, weight=2),
        Target("lines of studies", studies, _read_study),
        Target("search.jsonl", [{"search.jsonl": _lines([trial, trial | {"number": 2}])}], _read_search),
        Target("model folder", models, lresnet.from_pretrained, weight=2),
        Target("converted model", converted, lambda folder: lresnet.from_pretrained(folder, net=flat), weight=0.5),
        Target("own weights", [weights], lambda folder: load_weights(torch.nn.Linear(3, 2), folder)),
        Target("checkpoint", checkpoints, _first(load_checkpoint), weight=2),
    ]


_LARGER = {
    f"lorentz_{name}" for name in ("resnet", "resnet18", "resnet32", "resnet34", "resnet50", "vit_tiny", "vit_small")
}
"""Names that only set the sizes of another name."""


def _sizes(name: str) -> dict[str, Any]:
    """Return the arguments of a small model."""
    if name == "lorentz_embedding":
        return {"in_features": 4, "hidden": 4}
    if name in ("lorentz_gpt", "lorentz_vit"):
        return {"layers": 2, "width": 16, "heads": 2} | ({"vocab_size": 8} if name == "lorentz_gpt" else {"patch": 4})
    return {"num_classes": 2} | ({} if "resnet" in name else {"in_features": 4, "hidden": 4})


def _without_checksums(record: bytes) -> bytes:
    """Return a record whose changes only its values can show."""
    values = {name: value for name, value in json.loads(record).items() if name not in ("checksum", "files")}
    return json.dumps(values, indent=2).encode()


def _read_records(folder: Path) -> None:
    found = read_report(folder)
    report_json(found)
    computing_time(found.records)
    for read in (read_record, read_evaluation):
        read(folder)


def _read_curve(folder: Path) -> None:
    read_curve(folder)


def _read_results(folder: Path) -> None:
    runs = read_runs(folder)
    in_order(aggregate(runs))
    recipe_notes({(run["table"], run["cell"]) for run in runs})
    list(read_results(folder / "gnn.jsonl"))


_STUDIES = {"ancestors": ancestors, "completion": study, "hierarchy_images": hierarchy_images}


def _study_lines(name: str) -> list[dict[str, Any]]:
    """Return lines of a study without their checksums, which would notice every change."""
    return list(itertools.islice(read_results(Path(__file__).parents[2] / "results" / f"{name}.jsonl"), 3))


def _read_study(folder: Path) -> None:
    for name, module in _STUDIES.items():
        module.own_lines(folder / f"{name}.jsonl")
        module.results_file(folder / f"{name}.jsonl").keys()


def _read_search(folder: Path) -> None:
    for trial in read_trials(folder):
        assert trial.validation is None or trial.validation + trial.seconds < float("inf")


def _unlabelled(path: Path) -> object:
    return read_unlabelled(path, (8, 8))


def _idx(path: Path) -> object:
    return read_idx_images(path, (32, 32))


def _first(read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a function that reads the one file of a folder."""
    return lambda folder: read(next(iter(sorted(folder.iterdir())), folder / "missing"))


def _files(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npz(arrays: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _sparse(matrix: Any) -> bytes:
    file = io.BytesIO()
    sparse.save_npz(file, matrix)
    return file.getvalue()


def _encoded(image: Image.Image, name: str, options: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    kind = {"jpg": "JPEG", "tif": "TIFF"}.get(name[2:], name[2:].upper())
    image.save(file, kind, **options)
    return file.getvalue()


def _lines(records: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()
