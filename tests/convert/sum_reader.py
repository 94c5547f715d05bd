"""A module with all that a forward in a test may ask for, and what is found in that forward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from lresnet.convert.method_source import read_method
from lresnet.convert.parts import Parts
from lresnet.convert.skip_sums import find_skip_sums


class Net(nn.Module):
    """Whatever a forward below may ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g, self.norm, self.drop = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout()
        self.shortcut, self.proj, self.downsample = nn.Linear(4, 4), nn.Linear(4, 4), None
        self.gamma, self.weight, self.pos = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4, 4)), nn.Linear(4, 4)
        self.layers, self.wte, self.wpe = nn.ModuleList([nn.Linear(4, 4)]), nn.Embedding(9, 4), nn.Embedding(9, 4)
        self.pos_embed, self.flag, self.act = nn.Linear(4, 4), True, torch.sin
        self.posemb, self.code = nn.Linear(4, 4), type("SinusoidalPositionalEncoding", (nn.Identity,), {})()
        self.rel_pos_attn, self.heads = nn.Linear(4, 4), type("RelPositionAttention", (nn.Identity,), {})()
        self.residual_function, self.held = nn.Linear(4, 4), [self.f, self.g]
        self.register_buffer("cos", torch.ones(4))

    def rotate(self, x):
        return torch.cat([-x[..., 2:], x[..., :2]], -1)

    @staticmethod
    def double(x):
        return 2 * x

    @property
    def chosen(self):
        return self.f

    def block(self, x):
        return self.drop(self.f(x))


def read(forward: Callable[..., object]) -> tuple[list[tuple[str, bool]], list[str]]:
    cls = type("Net", (Net,), {"forward": forward})
    skips, unclear, _ = find_skip_sums(read_method(cls, "forward"), Parts(cls()))
    return [(one.sum.text, one.skip_first) for one in skips], [one.sum.text for one in unclear]
