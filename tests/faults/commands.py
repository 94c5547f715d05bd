"""Damaged and unreadable files of a run on images, given to every command that reads them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image

from lresnet import cli
from lresnet.train import engine

NOBODY = 65534
Outcome = tuple[int, str, str, str]  # exit code, standard output, standard error, digest of what was written


@dataclass(frozen=True)
class Runs:
    """A folder of images, other images, and runs on them: finished, of another seed, and interrupted.

    A run that is damaged is a copy at ``run``, because the commands name it.
    """

    place: Path

    @property
    def run(self) -> Path:
        return self.place / "run"

    def command(self, verb: str) -> list[str]:
        """Return the arguments of a command on :attr:`run`."""
        run, images, others = map(str, (self.run, self.place / "images", self.place / "others"))
        return {
            "train": [*self._training("0"), run],
            "evaluate": ["evaluate", run],
            "predict": ["predict", run, f"{others}/0.png", f"{images}/test/b/1.png"],
            "ood": ["ood", run, "--ood", others, "--json"],
            "embed": ["embed", run, "--out", str(self.place / "out" / "points.npz")],
            "report": ["report", run, "--json"],
        }[verb]

    def _training(self, seed: str) -> list[str]:
        settings = "--task images --model lorentz_resnet20 --epochs 4 --batch-size 4 --lr 0.3 --device cpu"
        images = str(self.place / "images")
        return ["train", images, *settings.split(), "--checkpoint-every", "1", "--seed", seed, "--out"]

    def copy(self, source: str) -> None:
        """Replace the run by a whole copy of another folder."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.place / source, self.run)

    def files(self, source: str) -> list[str]:
        folder = self.place / source
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    @classmethod
    def prepare(cls, place: Path) -> Runs:
        """Write the images and train the runs."""
        found, pixels = cls(place), np.random.default_rng(0)
        place.chmod(0o755)
        folders = [(f"images/{part}/{kind}", level) for part in ("train", "test") for kind, level in _CLASSES.items()]
        for folder, level in [*folders, ("others", 120)]:
            (place / folder).mkdir(parents=True)
            for number in range(6):
                image = pixels.normal(level, 30, (12, 12, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(image).save(place / folder / f"{number}.png")
        (place / "out").mkdir(mode=0o777)
        (place / "out").chmod(0o777)
        for folder, seed in (("finished", "0"), ("another", "1")):
            _must_end(0, [*found._training(seed), str(place / folder)])
            _must_end(0, ["evaluate", str(place / folder)])
        saves = iter(range(3))
        save = engine.save_checkpoint

        def save_and_stop(*arguments: Any) -> None:
            save(*arguments)
            if next(saves) == 2:
                raise KeyboardInterrupt

        with mock.patch.object(engine, "save_checkpoint", save_and_stop):
            _must_end(130, [*found._training("0"), str(place / "interrupted")])
        return found


_CLASSES = {"a": 40, "b": 200}
VERBS = ("train", "evaluate", "predict", "ood", "embed", "report")


def _must_end(code: int, arguments: list[str]) -> None:
    found = run_command(arguments)
    assert found[0] == code, found


def run_command(arguments: list[str], digest: Callable[[], str] = str) -> Outcome:
    """Run a command in this process."""
    torch.set_num_threads(1)
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = cli.main(arguments)
        except BaseException:
            code = -1
            traceback.print_exc(file=errors)
    return code, out.getvalue(), errors.getvalue(), digest() if code == 0 else ""


def run_verb(runs: Runs, verb: str, answers: Any, *, unprivileged: bool = False) -> None:
    """Run a command in a process of its own, and send its outcome. Without privileges, permissions hold."""
    if unprivileged and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    found = run_command(runs.command(verb), lambda: written(runs, verb))
    printed = found[1] if verb != "train" else ""
    answers.put((found[0], "" if verb == "embed" else printed, *found[2:]))


def written(runs: Runs, verb: str) -> str:
    if verb == "train":
        return hashlib.sha256((runs.run / "model" / "model.safetensors").read_bytes()).hexdigest()
    if verb == "embed":
        with np.load(runs.place / "out" / "points.npz") as arrays:
            return hashlib.sha256(arrays["points"].tobytes()).hexdigest()
    return ""


def verdict(runs: Runs, found: Outcome, whole: Outcome) -> str:
    """Return ``survived`` if the outcome is that of whole files or one line reports the damage; see ``Count.add``."""
    code, _, errors, _ = found
    reports = [line for line in errors.splitlines() if line.startswith("lresnet: ")]
    if code == 2 and len(reports) == len(errors.splitlines()) and "error: " in (reports or [""])[-1]:
        return "survived" if str(runs.place) in reports[-1] else f"lost: the error names no file: {errors!r}"
    if code != 0 or "Traceback" in errors:
        return f"lost: exit code {code}: {errors[-500:]!r}"
    if (found[1], found[3]) == (whole[1], whole[3]) or any(str(runs.run) in line for line in reports):
        return "survived"
    return f"silent: {found[1][-200:]!r} instead of {whole[1][-200:]!r}"


# What is done to a file ----------------------------------------------------------------------------------------------


def _flipped(content: bytes, dice: random.Random) -> bytes:
    place, flipped = dice.randrange(8 * len(content)), bytearray(content)
    flipped[place // 8] ^= 1 << place % 8
    return bytes(flipped)


_CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": _flipped,
    "cut": lambda content, dice: content[: dice.randrange(len(content))],
    "empty": lambda *_: b"",
    "zeros": lambda content, _: bytes(len(content)),
    "twice": lambda content, _: content + content,
}


def damages(runs: Runs, dice: random.Random) -> Iterator[tuple[str, str, Callable[[], None], Callable[[], None]]]:
    """Yield what is damaged, the run it needs, a function that damages it, and one that mends what is no copy."""
    for source in ("finished", "interrupted"):
        for name in runs.files(source):
            path = runs.run / name
            for kind, change in _CHANGES.items():
                yield f"{kind} {name}", source, lambda path=path, change=change: _change(path, change, dice), _nothing
            yield f"deleted {name}", source, path.unlink, _nothing
            other = runs.place / "another" / name
            if other.exists():
                yield f"swapped {name}", source, lambda path=path, other=other: _replace(path, other), _nothing
        for name in ("train/a/0.png", "train/b/3.png", "test/a/1.png", "test/b/5.png"):
            path = runs.place / "images" / name
            content = path.read_bytes()
            mend = lambda path=path, content=content: _write(path, content)  # noqa: E731
            for kind, change in _CHANGES.items():
                if kind != "twice":  # what follows an image is ignored
                    yield f"{kind} {name}", source, lambda path=path, change=change: _change(path, change, dice), mend
            yield f"deleted {name}", source, path.unlink, mend
            other = path.with_name("4.png")
            yield f"swapped {name}", source, lambda path=path, other=other: _replace(path, other), mend


def prohibitions(runs: Runs) -> Iterator[tuple[str, str, Callable[[], None], Callable[[], None]]]:
    """Yield what may not be read or written, in the form of :func:`damages`; the run belongs to its user."""
    for source in ("finished", "interrupted"):
        for name in (*runs.files(source), "model", "."):
            path = runs.run / name
            if (runs.place / source / name).exists():
                yield f"no access to {name}", source, lambda path=path: _own(runs.run, path, 0), _nothing
        for mode in (0o555, 0o444, 0o311):
            yield f"folder {mode:o}", source, lambda mode=mode: _own(runs.run, runs.run, mode), _nothing
        for name in (".", "train/a", "train/a/0.png", "test/b/5.png"):
            path = runs.place / "images" / name
            mode = path.stat().st_mode

            def mend(path: Path = path, mode: int = mode) -> None:
                path.chmod(mode)

            yield f"no access to images/{name}", source, lambda path=path: _own(runs.run, path, 0), mend


def _own(run: Path, path: Path, mode: int) -> None:
    if os.geteuid() == 0:
        for each in (run, *run.rglob("*")):
            os.chown(each, NOBODY, NOBODY)
        if not path.is_relative_to(run):
            os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)


def _change(path: Path, change: Callable[[bytes, random.Random], bytes], dice: random.Random) -> None:
    path.write_bytes(change(path.read_bytes(), dice))


def _replace(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _nothing() -> None:
    pass
