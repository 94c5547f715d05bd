"""The plan: its table, the choice of sums by name, and the network that it is for."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import lresnet
from tests.convert.checks import Net, example, net_with
from tests.convert.own_networks import Deep, Recurrent, Transformer


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, width), nn.GELU())

    def forward(self, x):
        x = x + self.mlp(self.norm(x))
        return x + 0.5 * self.mlp(x)


class Wide(Block):
    def forward(self, x):
        return self.mlp(x).relu() + x


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.last, self.head = nn.ModuleList([Block(), Block()]), Wide(), nn.Linear(4, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x)) + self.head(x)


FILE = Path(__file__).name
FIRST, SECOND = Block.forward.__code__.co_firstlineno + 1, Block.forward.__code__.co_firstlineno + 2
LAST, HEAD = Wide.forward.__code__.co_firstlineno + 1, Body.forward.__code__.co_firstlineno + 3


def body() -> tuple[Body, lresnet.convert.Plan]:
    torch.manual_seed(0)
    network = Body()
    return network, lresnet.find_sums(network, example())


def residual_names(network: nn.Module) -> set[str]:
    return {name for name, part in network.named_modules() if type(part).__name__ == "LorentzResidual"}


# The table


def test_a_sum_tells_where_it_stands_and_what_it_was_seen_to_do():
    _, plan = body()
    assert plan.network == "Body"
    assert len(plan) == len(list(plan)) == 6
    first = plan.sums[0]
    assert (first.name, first.module, first.class_name) == (f"blocks.0:{FIRST}", "blocks.0", "Block")
    assert (first.function, Path(first.file), first.line) == ("forward", Path(__file__), FIRST)
    assert first.text == "x + self.mlp(self.norm(x))"
    assert (first.shape, first.axis, first.width, first.calls) == ((2, 4, 4), -1, 4, 1)
    assert (first.skip_first, first.converted, first.reason) == (True, True, "")
    assert first.next == "Linear, sum"
    assert plan.sums[-1].name == f":{HEAD}"
    assert repr(first) == f"Sum(blocks.0:{FIRST}, x + self.mlp(self.norm(x)), converted)"
    assert repr(plan.sums[-1]).startswith(f"Sum(:{HEAD}, self.head(self.last(x)) + self.head(x), not converted: ")


def test_the_table_has_a_line_for_each_line_of_the_source():
    _, plan = body()
    title, header, rule, *rows = str(plan).splitlines()
    assert title == "6 sums ran in Body, 5 converted"
    assert header.split() == ["sum", "of", "code", "where", "shape", "axis", "width", "calls", "next", "converted"]
    assert set(rule) == {"-", " "}
    cells = [[cell for cell in row.split("  ") if cell] for row in rows]
    assert [[cell.strip() for cell in row] for row in cells[:3]] == [
        [f"blocks.0:{FIRST} ... blocks.1:{FIRST} (2)", "Block", "x + self.mlp(self.norm(x))", f"{FILE}:{FIRST}",
         "2x4x4", "-1", "4", "1", "Linear, sum", "yes"],
        [f"blocks.0:{SECOND}", "Block", "x + 0.5 * self.mlp(x)", f"{FILE}:{SECOND}",
         "2x4x4", "-1", "4", "1", "LayerNorm, sum", "yes"],
        [f"blocks.1:{SECOND}", "Block", "x + 0.5 * self.mlp(x)", f"{FILE}:{SECOND}",
         "2x4x4", "-1", "4", "1", "Linear, sum", "yes"],
    ]  # fmt: skip
    assert cells[-1][-1].startswith("no: ")
    assert repr(plan) == str(plan)


def test_the_table_shows_calls_shapes_and_long_code():
    plan = lresnet.find_sums(nn.Sequential(Recurrent(steps=3), Recurrent(steps=4)), torch.randn(2, 8))
    (row,) = str(plan).splitlines()[3:]
    assert "3-4" in row
    plan = lresnet.find_sums(nn.Sequential(Wide(), nn.Flatten(0, 1), Wide(), Wide()), example())
    assert "2x4x4 ..." in str(plan)

    def forward(self, x):
        return x + self.f(self.g(self.f(self.g(self.f(self.g(self.f(self.g(x))))))))

    (row,) = str(lresnet.find_sums(net_with(forward), example())).splitlines()[3:]
    assert "  x + self.f(self.g(self.f(self.g(self.f(self.g...  " in row


def test_a_plan_without_sums_has_no_table():
    assert str(lresnet.find_sums(nn.Linear(4, 4), example())) == "0 sums ran in Linear, 0 converted"


def test_an_axis_that_is_unknown_is_shown_as_a_question_mark():
    def forward(self, x):
        return x + torch.cdist(x, x)

    (one,) = lresnet.find_sums(net_with(forward), example())
    assert (one.converted, one.axis, one.width) == (True, None, None)
    assert "  ?     ?      1  " in str(lresnet.find_sums(net_with(forward), example()))


def test_next_names_the_operation_of_the_networks_own_forward():
    def forward(self, x):
        return (x + self.f(x)).sin()

    (one,) = lresnet.find_sums(net_with(forward), example())
    assert one.next == "sin"


def test_next_names_operations_and_layers():
    class Inner(Net):
        def forward(self, x):
            return (x + self.f(x)).sin()

    (one,) = lresnet.find_sums(nn.Sequential(Inner()), example())
    assert one.next == "sin"
    (one,) = lresnet.find_sums(nn.Sequential(Wide(), nn.GELU()), example())
    assert one.next == "GELU"


# include and exclude


PATTERNS = [
    (f"blocks.0:{FIRST}", 1), ("blocks.0", 2), ("blocks", 4), ("blocks.*", 4), ("Block", 4), ("Wide", 1),
    (f"{FILE}:{FIRST}", 2), (f"*:{LAST}", 1), ("last", 1), ("*", 6),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "count"), PATTERNS)
def test_sums_are_excluded_by_name_path_class_and_line(pattern, count):
    _, plan = body()
    before = {one.name for one in plan}
    assert plan.exclude(pattern) is plan
    excluded = [one for one in plan if one.reason == "excluded"]
    assert len(excluded) == count
    assert {one.name for one in plan} == before
    assert not any(one.converted for one in excluded)


def test_what_is_excluded_stays_a_sum():
    network, plan = body()
    found = lresnet.lorentzify(network, plan=plan.exclude("blocks.0"))
    assert residual_names(found) == {"blocks.1.residual", "blocks.1.residual_2", "last.residual"}
    assert "no: excluded" in str(plan)


def test_one_sum_of_a_class_is_excluded_in_one_module_only():
    network, plan = body()
    flat = lresnet.lorentzify(network, plan=plan.exclude(f"blocks.1:{FIRST}"), residual="space")
    assert torch.equal(flat(example()), network(example()))
    found = lresnet.lorentzify(network, plan=plan)
    assert residual_names(found) == {"blocks.0.residual", "blocks.0.residual_2", "blocks.1.residual", "last.residual"}
    assert type(found.blocks[0]) is not type(found.blocks[1])


def test_what_is_included_is_converted():
    network, plan = body()
    assert not plan.sums[-1].converted
    found = lresnet.lorentzify(network, plan=plan.include(f":{HEAD}"))
    assert "residual" in residual_names(found)
    assert plan.sums[-1].skip_first
    plan.include(f":{HEAD}", skip_first=False)
    x, found = example(), lresnet.lorentzify(network, plan=plan, weight=0.0, scale=1.0, curvature=-1.0)
    seen = []
    found.residual.register_forward_hook(
        lambda _module, _args, named, result: seen.append((named["x"], result)), with_kwargs=True
    )
    found(x)
    ((skip, result),) = seen
    torch.testing.assert_close(result, skip)


def test_excluded_and_included_again():
    network, plan = body()
    plan.exclude("*").include("last")
    assert [one.module for one in plan.converted] == ["last"]
    assert residual_names(lresnet.lorentzify(network, plan=plan)) == {"last.residual"}


def test_a_pattern_without_a_match_names_the_nearest():
    _, plan = body()
    for change in (plan.include, plan.exclude):
        with pytest.raises(ValueError, match=rf"no sum of Body matches 'block.0:{FIRST}'; the nearest name is 'blocks"):
            change(f"block.0:{FIRST}")
    with pytest.raises(ValueError, match=r"no sum of Linear matches 'x'. print\(plan\) shows their names"):
        lresnet.find_sums(nn.Linear(4, 4), example()).include("x")


def test_code_that_cannot_be_rewritten_cannot_be_included():
    def forward(self, x):
        return sum([x, self.f(x)])

    network = net_with(forward)
    with pytest.raises(ValueError, match=r":\d+ cannot be converted: it is written as sum\(\[x, self.f\(x\)\]\)"):
        lresnet.find_sums(network, example()).include("*")


def test_a_sum_of_another_form_cannot_be_included():
    def forward(self, x):
        return torch.addcmul(x, self.gamma.expand_as(x), self.f(x))

    with pytest.raises(ValueError, match=r"cannot be converted: it is written as torch.addcmul"):
        lresnet.find_sums(net_with(forward), example()).include("*")


# The network that a plan is for


def test_a_plan_for_another_network_is_refused():
    _, plan = body()
    with pytest.raises(ValueError, match=r"the plan is for another network: Deep has no part 'blocks.0'"):
        lresnet.lorentzify(Deep(), plan=plan)
    other = Body()
    other.blocks[0] = Wide()
    with pytest.raises(ValueError, match=r"the plan is for another network: blocks.0 is a Wide, not a Block"):
        lresnet.lorentzify(other, plan=plan)


def test_a_plan_serves_after_the_weights_have_changed():
    network, plan = body()
    with torch.no_grad():
        network.head.weight.fill_(2.0)
    flat = lresnet.lorentzify(network, plan=plan, residual="space")
    assert torch.equal(flat(example()), network(example()))


def test_a_plan_serves_more_than_once():
    network, plan = body()
    first, second = (lresnet.lorentzify(network, plan=plan) for _ in range(2))
    assert (
        residual_names(first)
        == residual_names(second)
        == residual_names(lresnet.lorentzify(network, plan=plan, residual="lorentz"))
    )
    assert not {id(one) for one in first.parameters()} & {id(one) for one in second.parameters()}


def test_a_plan_and_an_example_are_too_much():
    network, plan = body()
    with pytest.raises(ValueError, match="give an example or a plan, not both"):
        lresnet.lorentzify(network, example=example(), plan=plan)


def test_the_example_may_be_a_tensor_a_tuple_or_named_arguments():
    network = Transformer()
    x, mask = torch.randn(2, 5, 8), torch.zeros(5, 5)
    for given in (x, (x,), [x, mask], (x, mask), {"x": x}, {"x": x, "mask": mask}):
        assert len(residual_names(lresnet.lorentzify(network, example=given))) == 4


# The network does not change


class Stateful(nn.Module):
    """Counts its calls, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.seen: list[torch.Size] = []

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape)
        x *= 2
        return x.clone() + self.drop(self.bn(self.conv(x))) * torch.rand(1)


@pytest.mark.parametrize("training", [True, False])
def test_network_inputs_random_state_and_mode_are_unchanged(training):
    network, x = Stateful().train(training), torch.randn(2, 3, 4, 4)
    network.bn.eval()
    network.conv.weight.grad = torch.ones_like(network.conv.weight)
    state, given, random = copy.deepcopy(network.state_dict()), x.clone(), torch.get_rng_state()
    modes, classes = [part.training for part in network.modules()], [type(part) for part in network.modules()]
    plan = lresnet.find_sums(network, x)
    found = lresnet.lorentzify(network, plan=plan)
    lresnet.lorentzify(network, example=x)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, given)
    torch.testing.assert_close(network.state_dict(), state, rtol=0, atol=0)
    assert [part.training for part in network.modules()] == modes
    assert [part.training for part in found.modules()][: len(modes)] == modes
    assert [type(part) for part in network.modules()] == classes
    assert network.seen == []
    assert found.seen == []
    assert float(found.calls) == 0
    assert torch.equal(network.conv.weight.grad, torch.ones_like(network.conv.weight))
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert torch.is_grad_enabled()


def test_an_error_of_the_network_leaves_no_hooks():
    network = Body()
    with pytest.raises(RuntimeError, match=r"mat1 and mat2|normalized_shape"):
        lresnet.find_sums(network, torch.randn(2, 3))
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_hooks_of_the_network_are_kept_and_run():
    network, seen = Body(), []
    network.last.register_forward_hook(lambda module, given, found: seen.append(found.shape))
    found = lresnet.lorentzify(network, example=example())
    seen.clear()
    found(example())
    assert seen == [(2, 4, 4)]


def test_a_network_that_does_not_train_on_the_example_is_followed_in_evaluation_only():
    """A batch norm refuses one row in training mode."""
    network = nn.Sequential(Wide(), nn.BatchNorm1d(4), Wide())
    plan = lresnet.find_sums(network, torch.randn(1, 4))
    assert len(plan.converted) == 2
    assert "It does not run in training mode with this example" in str(plan)


def test_sums_of_training_mode_only_are_found():
    def forward(self, x):
        return x + self.f(x) if self.training else self.f(x)

    (one,) = lresnet.find_sums(net_with(forward), example())
    assert one.converted
    assert "residual" in residual_names(lresnet.lorentzify(net_with(forward), example=example()))


def test_the_plan_runs_under_no_grad_and_inference_mode():
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert len(lresnet.find_sums(Body(), example()).converted) == 5
