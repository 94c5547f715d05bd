"""The source must be that of the code that runs: a file that was edited after the import is refused."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import pickle
import sys
import textwrap

import pytest
import torch

import lresnet
from lresnet.convert import source
from lresnet.convert.source import Unreadable
from tests.convert.checks import Net, check_same, example

ORIGINAL = """
    import torch
    from torch import nn


    def helper(x, y):
        return x + 0.5 * y


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = x + 0.1 * self.f(x)
            names = {"a", "b"}
            assert len(names) == 2
            return helper(x, self.g(x))


    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(4, 4)

        def forward(self, x):
            return x + self.f(x)
    """
EDITS = {
    "constant": ("0.1 * self.f", "0.7 * self.f"),
    "operator": ("0.1 * self.f", "0.1 / self.f"),
    "sum and difference": ("x + 0.1 *", "x - 0.1 *"),
    "sign of zero": ("0.1 *", "-0.0 *"),
    "other layer": ("self.f(x)\n        names", "self.g(x)\n        names"),
    "order": ("x + 0.1 * self.f(x)", "0.1 * self.f(x) + x"),
    "name": ("x = x + 0.1", "y = x + 0.1"),
    "string": ('"a", "b"', '"a", "c"'),
    "new line before": ("import torch\n", "import torch\n\n\n"),
    "method removed": ("def forward(self, x):\n        x = x", "def other(self, x):\n        x = x"),
    "syntax error": ("x = x + 0.1", "x = = x + 0.1"),
}


class Edited:
    """A module file that can be rewritten on disk."""

    def __init__(self, folder, number: int) -> None:
        self.name = f"edited_network_{number}"
        self.file = folder / f"{self.name}.py"
        self.text = textwrap.dedent(ORIGINAL).lstrip()
        self.file.write_text(self.text)
        self.module = importlib.import_module(self.name)

    def rewrite(self, old: str, new: str) -> None:
        assert self.text.count(old) == 1
        self.file.write_text(self.text.replace(old, new))
        os.utime(self.file, (1, 1))  # an edit within the clock's resolution is seen by its time stamp
        linecache.checkcache()


@pytest.fixture
def edited(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    _clear()
    found = Edited(tmp_path, len([name for name in sys.modules if name.startswith("edited_network")]))
    yield found
    _clear()


def _clear() -> None:
    """Forget sources, as a new process would."""
    from lresnet.convert import places

    for cache in (source._lines, source._codes_of_file, places._cached_method, places._cached_function):
        cache.cache_clear()


def test_an_unchanged_file_is_converted(edited):
    network = edited.module.Net()
    plan = lresnet.find_sums(network, example())
    assert [one.text for one in plan.converted] == ["x + 0.1 * self.f(x)", "x + 0.5 * y"]
    check_same(network, example())


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_that_was_edited_before_the_conversion_is_refused(edited, edit):
    network = edited.module.Net()
    edited.rewrite(*EDITS[edit])
    plan = lresnet.find_sums(network, example())
    assert not plan.converted
    assert all("source" in one.reason for one in plan.refused)
    with pytest.raises(ValueError, match=r"the source|source found for"):
        lresnet.lorentzify(network, example=example())


@pytest.mark.parametrize("edit", ["constant", "operator", "sum and difference", "name"])
def test_a_file_that_was_edited_between_plan_and_conversion_is_refused_or_not_read_again(edited, edit):
    """The code that runs must be the old one in both cases."""
    network = edited.module.Net()
    plan = lresnet.find_sums(network, example())
    edited.rewrite(*EDITS[edit])
    with contextlib.suppress(Unreadable):
        flat = lresnet.lorentzify(network, residual="space", plan=plan)
        assert torch.equal(flat(example()), network(example()))


def test_an_edited_helper_function_is_refused(edited):
    network = edited.module.Net()
    edited.rewrite("x + 0.5 * y", "x + 0.6 * y")
    plan = lresnet.find_sums(network, example())
    assert [one.text for one in plan.converted] == ["x + 0.1 * self.f(x)"]
    (one,) = plan.refused
    assert "the source of helper is not the code that runs" in one.reason


def test_an_edit_of_another_class_does_not_matter(edited):
    network = edited.module.Net()
    edited.rewrite("return x + self.f(x)", "return x - self.f(x)")
    assert len(check_same(network, example()).converted) == 2
    assert not lresnet.find_sums(edited.module.Other(), example()).converted


def test_a_comment_does_not_matter(edited):
    network = edited.module.Net()
    edited.rewrite("x = x + 0.1 * self.f(x)", "x = x + 0.1 * self.f(x)  # a comment")
    assert len(check_same(network, example()).converted) == 2


def test_a_pickle_of_other_code_is_refused(edited):
    """A file that changed since the network was pickled may not have the sums any more."""
    saved = pickle.dumps(lresnet.lorentzify(edited.module.Other(), example=example()))
    changed = edited.text.replace("return x + self.f(x)", "return x + self.f(self.f(x))")
    edited.file.write_text(changed)
    linecache.checkcache()
    importlib.invalidate_caches()
    del sys.modules[edited.name]
    _clear()
    with pytest.raises(ValueError, match=r"does not have the sum 'x \+ self.f\(x\)' .*: convert the network again"):
        pickle.loads(saved)


def test_code_that_an_import_hook_has_changed_is_refused():
    """Such as pytest, which rewrites asserts."""

    class Checked(Net):
        def forward(self, x):
            assert x.ndim == 3
            return x + self.f(x)

    (one,) = lresnet.find_sums(Checked(), example())
    assert not one.converted
    assert "is not the code that runs" in one.reason
