"""Random networks whose number of residual connections is known by construction, written to files and converted."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lresnet
from tests.convert.checks import check_same

WIDTH = 4
_NUMBERS = itertools.count()


@dataclass
class Program:
    """The source of one class: parts of the module, statements, and the residual connections among them."""

    parts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    own: int = 0
    """Number of residual connections in its own code."""
    inner: int = 0
    """Number of those in the modules that it contains."""

    def part(self, code: str) -> str:
        self.parts.append(code)
        return f"self.p{len(self.parts) - 1}"

    def text(self, name: str) -> str:
        parts = [f"        self.p{number} = {code}" for number, code in enumerate(self.parts)]
        head = [f"class {name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        return "\n".join([*head, *parts, "", "    def forward(self, v0):", *(f"        {one}" for one in self.lines)])


@st.composite
def branches(draw, program: Program, value: str, blocks: dict[str, Program]) -> str:
    """Return an expression that is computed from ``value`` by layers, each part of it new."""
    kinds = ["linear", "mlp", "norm", "attention", "dropout", "scaled", "turned", "slices"]
    kind = draw(st.sampled_from([*kinds, *blocks]))
    if kind in blocks:
        program.inner += blocks[kind].own + blocks[kind].inner
        return f"{program.part(f'{kind}()')}({value})"
    layer = program.part(f"nn.Linear({WIDTH}, {WIDTH})")
    match kind:
        case "linear":
            return f"{layer}({value})"
        case "mlp":
            other = program.part(f"nn.Linear({WIDTH}, {WIDTH})")
            return f"{other}(F.gelu({layer}({value})))"
        case "norm":
            return f"{layer}({program.part(f'nn.LayerNorm({WIDTH})')}({value})).relu()"
        case "attention":
            key = program.part(f"nn.Linear({WIDTH}, {WIDTH})")
            return f"(({value} @ {key}({value}).mT).softmax(-1) @ {layer}({value}))"
        case "dropout":
            return f"{program.part('nn.Dropout(0.3)')}({layer}({value}))"
        case "scaled":
            return f"{program.part(f'nn.Parameter(torch.full(({WIDTH},), 0.5))')} * {layer}({value})"
        case "turned":
            return f"{layer}({value}.transpose(0, 1)).transpose(0, 1)"
        case _:
            return f"torch.cat([{layer}(piece) for piece in {value}.chunk(2, 1)], 1)"


@st.composite
def programs(draw, blocks: dict[str, Program]) -> Program:
    """Return a class of random statements. Every statement reads any value before it."""
    program, values = Program(), ["v0"]
    count = draw(st.integers(1, 5))
    for number in range(1, count + 1):
        new, old = f"v{number}", draw(st.sampled_from(values))
        last = number == count
        kinds = ["skip first", "skip second", "function", "in place", "loop", "projected", "helper", "parallel"]
        others = ["layer", "two layers", "position", "gate", "two linear", "noise", "scalars"]
        kind = draw(st.sampled_from(kinds if last else kinds + others))
        program.own += kind in kinds
        branch = draw(branches(program, old, blocks))
        match kind:
            case "skip first":
                lines = [f"{new} = {old} + {branch}"]
            case "skip second":
                lines = [f"{new} = {branch} + {old}"]
            case "function":
                lines = [f"{new} = torch.add({old}, {branch})"]
            case "in place":
                lines = [f"{new} = 1.0 * {branch}", f"{new} += {old}"]
            case "loop":
                layers = program.part(f"nn.ModuleList(nn.Linear({WIDTH}, {WIDTH}) for _ in range(2))")
                lines = [f"{new} = {branch}", f"for layer in {layers}:", f"    {new} = {new} + layer({new})"]
            case "projected":
                wide, other = (program.part(f"nn.Linear({WIDTH}, 6)") for _ in range(2))
                back = program.part(f"nn.Linear(6, {WIDTH})")
                lines = [f"{new} = {back}({wide}({old}) + {other}(F.gelu({branch})))"]
            case "helper":
                lines = [f"{new} = helper({old}, {branch})"]
            case "parallel":
                second = draw(branches(program, old, blocks))
                lines = [f"{new} = {old} + {branch} + {second}"]
                program.own += 1
            case "layer":
                lines = [f"{new} = {branch}"]
            case "two layers":
                first, second = (program.part(f"nn.Linear({WIDTH}, {WIDTH})") for _ in range(2))
                lines = [f"{new} = {first}({old}).relu() + {second}({old}).tanh() * {branch}.sigmoid()"]
            case "position":
                lines = [f"{new} = {branch} + {program.part(f'nn.Parameter(torch.randn(2, 4, {WIDTH}))')}"]
            case "gate":
                lines = [f"gate = {branch}.sigmoid()", f"{new} = gate * {old} + (1 - gate) * F.relu({old})"]
            case "two linear":
                wide, other = (program.part(f"nn.Linear({WIDTH}, 6)") for _ in range(2))
                back = program.part(f"nn.Linear(6, {WIDTH})")
                lines = [f"{new} = {back}({wide}({old}) + {other}({old})) * {branch}"]
            case "noise":
                lines = [f"{new} = {branch} + torch.rand(2, 4, {WIDTH})"]
            case _:
                lines = [f"{new} = {branch} * ({old}.mean() + {old}.square().mean())"]
        program.lines += lines
        values.append(new)
    program.lines.append(f"return v{count}")
    return program


@st.composite
def sources(draw) -> tuple[str, int]:
    """Return the source of a network, and its number of residual connections."""
    blocks: dict[str, Program] = {}
    for name in ("First", "Second", "Network")[3 - draw(st.integers(1, 3)) :]:
        blocks[name] = draw(programs(dict(blocks)))
    head = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"
    helper = "def helper(x, y):\n    return x + 0.5 * y\n\n\n"
    text = head + helper + "\n\n\n".join(program.text(name) for name, program in blocks.items()) + "\n"
    return text, blocks["Network"].own + blocks["Network"].inner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


def network_of(text: str, folder) -> torch.nn.Module:
    name = f"random_network_{next(_NUMBERS)}"
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module.Network().double()


@settings(max_examples=25, derandomize=True)
@given(sources())
def test_all_residual_connections_of_a_random_network_are_converted_and_nothing_else(folder, generated):
    text, expected = generated
    network = network_of(text, folder)
    x = torch.randn(2, 4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plan = check_same(network, x, exact_gradients=False)
    found = [one for one in plan if one.converted or one.is_post_norm]
    assert len(found) == expected, f"{plan}\n{text}"
    for one in found:
        plan.include(one.name)
    out, errors = outputs(network, x), []
    for curvature in (-1e-5, -1e-6):
        converted = lresnet.lorentzify(network, curvature, plan=plan, weight=1.0, scale=2.0)
        errors.append(float((outputs(converted, x) - out).abs().max() / -curvature))
    assert errors[0] == pytest.approx(errors[1], rel=0.05, abs=1e-6), text


def outputs(network: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    with torch.no_grad():
        return network.eval()(x)
