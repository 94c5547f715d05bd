"""Networks as people write them, with skip connections of every kind, and an input for each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lresnet.residual import LorentzResidual


class Basic(nn.Module):
    """The block of a ResNet, as torchvision writes it."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Other(nn.Module):
    """The block of a ResNet, as kuangliu writes it."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False))

    def forward(self, x):
        out = self.bn(self.conv(x))
        out += self.shortcut(x)
        return F.relu(out)


class Attention(nn.Module):
    """Sizes that are added, a mask that is added, heads: none of it is a skip connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, self.heads, -1).transpose(1, 2).chunk(3, dim=-1)
        scores = q @ k.transpose(-1, -2)
        if mask is not None:
            scores = scores + mask
        together = (scores + self.bias).softmax(-1) @ v
        extra = length + width - width
        return self.out(together.transpose(1, 2).reshape(batch, extra, width))


def feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))


class PreNorm(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.drop, self.mlp = Attention(width, 2), nn.Dropout(0.1), feed_forward(width)

    def forward(self, x, mask=None):
        x = x + self.drop(self.attention(self.norm1(x), mask))
        return torch.add(x, self.mlp(self.norm2(x)))


class PostNorm(PreNorm):
    def forward(self, x, mask=None):
        x = self.norm1(self.attention(x, mask) + x)
        return self.norm2(x.add(0.5 * self.mlp(x)))


class Parallel(PreNorm):
    def forward(self, x, mask=None):
        y = self.norm1(x)
        return x + self.attention(y, mask) + self.mlp(y)


class ParallelLast(PreNorm):
    def forward(self, x, mask=None):
        y = self.norm1(x)
        return self.attention(y, mask) + self.mlp(y) + x


class Transformer(nn.Module):
    def __init__(self, block: type[nn.Module] = PreNorm, width: int = 8) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(1, 9, width))
        self.layers = nn.ModuleList([block(width), block(width)])

    def forward(self, x, mask=None):
        x = x + self.position[:, : x.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        return x


class ConvNeXt(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 3, padding=1, groups=width), nn.LayerNorm(width)
        self.mlp, self.gamma = feed_forward(width), nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        shortcut = x
        x = self.depthwise(x).permute(0, 2, 3, 1)
        x = self.gamma * self.mlp(self.norm(x))
        return shortcut + x.permute(0, 3, 1, 2)


class Mixer(nn.Module):
    def __init__(self, width: int = 8, length: int = 5) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.channels = feed_forward(length), feed_forward(width)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Graph(nn.Module):
    """A convolution on a graph, as a block."""

    class Mean(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x, edge_index):
            source, target = edge_index
            return torch.zeros_like(x).index_add(0, target, self.linear(x)[source])

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv = self.Mean(width)

    def forward(self, x, edge_index):
        return x + self.conv(x, edge_index).relu()


class Deep(nn.Module):
    """Layers in a loop."""

    def __init__(self, width: int = 8, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x):
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            if i == 1:
                x = norm(x)
                continue
            x = x + layer(norm(x))
        return x


class Recurrent(nn.Module):
    def __init__(self, width: int = 8, steps: int = 3) -> None:
        super().__init__()
        self.steps, self.cell = steps, nn.Linear(width, width)

    def forward(self, x):
        for _ in range(self.steps):
            x = x + self.cell(x).tanh()
        return x


def resnet() -> nn.Sequential:
    stem, head = nn.Conv2d(3, 8, 3), (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(stem, Basic(8, 8), Basic(8, 16, 2), Other(16, 16), Other(16, 8, 2), *head)


NETWORKS = {
    "resnet": resnet,
    "pre-norm": Transformer,
    "post-norm": lambda: Transformer(PostNorm),
    "parallel": lambda: Transformer(Parallel),
    "parallel, skip last": lambda: Transformer(ParallelLast),
    "convnext": ConvNeXt,
    "mixer": Mixer,
    "graph": Graph,
    "deep": Deep,
    "recurrent": Recurrent,
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
    "decoder": lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True),
}
SUMS = {
    "resnet": 4, "pre-norm": 4, "post-norm": 4, "parallel": 4, "parallel, skip last": 2, "convnext": 1, "mixer": 2,
    "graph": 1, "deep": 1, "recurrent": 1, "encoder": 4, "decoder": 3,
}  # fmt: skip
"""Number of residual connections."""
POST_NORM = ("post-norm", "encoder")
"""Networks whose sums are all followed by a layer norm."""


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name]()


def inputs(name: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(1)
    tokens = torch.randn(2, 5, 8, generator=g, dtype=dtype)
    if name == "resnet":
        return (torch.randn(4, 3, 9, 9, generator=g, dtype=dtype),)
    if name == "convnext":
        return (torch.randn(2, 8, 5, 5, generator=g, dtype=dtype),)
    if name == "graph":
        return tokens[0], torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    if name == "decoder":
        return tokens, tokens.flip(0)
    if "norm" in name or name.startswith("parallel"):
        return tokens, torch.zeros(5, 5, dtype=dtype).masked_fill(torch.ones(5, 5).triu(1) > 0, -9.0)
    return (tokens,)


def residuals(network: nn.Module) -> dict[str, LorentzResidual]:
    return {name: module for name, module in network.named_modules() if isinstance(module, LorentzResidual)}
