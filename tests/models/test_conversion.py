"""A network of one's own with another residual connection: it is the network itself but for its sums."""

from __future__ import annotations

import copy
import io
import itertools
import traceback

import pytest
import torch
from torch import nn

import lresnet
from lresnet.optim import parameter_groups
from lresnet.residual import LorentzResidual
from tests.models.own_networks import AXES, NETWORKS, Basic, ConvNeXt, Deep, PreNorm, Recurrent, build, inputs, resnet

EVERY = pytest.mark.parametrize("name", NETWORKS)
SOME = pytest.mark.parametrize("name", ["resnet", "pre-norm", "deep", "encoder"])


def convert(name: str, module: nn.Module | None = None, **options) -> nn.Module:
    return lresnet.lorentzify(build(name) if module is None else module, dim=AXES.get(name), **options)


def residuals(network: nn.Module) -> dict[str, LorentzResidual]:
    return {name: module for name, module in network.named_modules() if isinstance(module, LorentzResidual)}


@EVERY
@pytest.mark.parametrize("kind", ["space", "euclidean"])
def test_space_addition_is_the_network_itself(name, kind):
    """In training mode, with dropout: its numbers are drawn in the same order."""
    network = build(name).train()
    converted = convert(name, network, residual=kind)
    torch.manual_seed(2)
    expected = network(*inputs(name))
    torch.manual_seed(2)
    torch.testing.assert_close(converted(*inputs(name)), expected, rtol=0, atol=0)


@EVERY
def test_in_flat_space_it_is_the_network_before_training(name):
    network = build(name).eval()
    found = convert(name, network, curvature=-1e-9)(*inputs(name))
    torch.testing.assert_close(found, network(*inputs(name)), rtol=1e-4, atol=1e-5)


@EVERY
def test_in_curved_space_it_is_another(name):
    network = build(name).eval()
    for kind in ("lorentz", "parallel_transport"):
        found = convert(name, network, curvature=-1.0, residual=kind)(*inputs(name))
        assert found.isfinite().all()
        divided_out = kind == "lorentz" and name in ("post-norm", "encoder")  # see below
        assert ((found - network(*inputs(name))).abs().max() > 1e-2) != divided_out


def test_a_layer_norm_after_the_sum_divides_the_lorentz_residual_out_again():
    """It is a multiple of x + w y, another one for each point: said in docs/convert.md."""
    network, x = build("post-norm").eval(), inputs("post-norm")
    found = convert("post-norm", network, curvature=-1.0)
    torch.testing.assert_close(found(*x), network(*x), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        found.layers[1].residual.raw_weight.fill_(2.0)
    assert (found(*x) - network(*x)).abs().max() > 1e-2


@EVERY
def test_without_a_skip_connection_the_input_is_not_added(name):
    network = build(name).eval()
    found = convert(name, network, residual="none")(*inputs(name))
    assert (found - network(*inputs(name))).abs().max() > 1e-3


@EVERY
def test_every_parameter_is_trained(name):
    network = build(name)
    converted = convert(name, network)
    converted(*inputs(name)).square().mean().backward()
    before = {key for key, _ in network.named_parameters()}
    added = {key: value.grad for key, value in converted.named_parameters() if key not in before}
    assert added
    unused = {"residual.1.raw_weight", "residual.1.log_scale"} if name == "deep" else set()  # a round that goes on
    assert {key for key, grad in added.items() if grad is None} == unused


@EVERY
def test_parameters_keep_their_names_and_values(name):
    network = build(name)
    converted = convert(name, network)
    state = converted.state_dict()
    for key, value in network.state_dict().items():
        assert torch.equal(state.pop(key), value)
    assert {key.rsplit(".", 1)[-1] for key in state} <= {"raw_weight", "log_scale"}
    assert len(parameter_groups(converted).geometric) == 2 * len(residuals(converted))


@EVERY
def test_the_network_that_is_given_stays_as_it_is(name):
    network = build(name)
    before, parts = copy.deepcopy(network.state_dict()), [type(module) for module in network.modules()]
    converted = convert(name, network)
    with torch.no_grad():
        for parameter in converted.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert [type(module) for module in network.modules()] == parts
    for cls, new in zip(parts, _old(converted), strict=True):
        assert isinstance(new, cls)
        assert type(new).__name__ == cls.__name__


def _old(network: nn.Module) -> list[nn.Module]:
    return [module for name, module in network.named_modules() if "residual" not in name and "manifold" not in name]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # what torch's compiler does is not our business
@EVERY
def test_it_compiles_without_a_break(name):
    converted = convert(name).eval()
    torch._dynamo.reset()
    compiled = torch.compile(converted, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs(name)), converted(*inputs(name)), rtol=1e-4, atol=1e-5)


@EVERY
def test_copies_and_pickles(name):
    converted = convert(name).eval()
    expected = converted(*inputs(name))
    file = io.BytesIO()
    torch.save(converted, file)
    file.seek(0)
    for twin in (copy.deepcopy(converted), torch.load(file, weights_only=False)):
        assert torch.equal(twin(*inputs(name)), expected)
        assert [type(module) for module in twin.modules()] == [type(module) for module in converted.modules()]
        assert all(old is not new for old, new in zip(converted.parameters(), twin.parameters(), strict=True))
        owners = [module for module in twin.modules() if isinstance(module, lresnet.Lorentz)]
        assert all(module.manifold is owners[0] for module in residuals(twin).values())


@SOME
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes_are_those_of_the_network(name, dtype):
    network = build(name).to(dtype)
    converted = convert(name, network)
    assert {parameter.dtype for parameter in converted.parameters()} == {dtype}
    assert converted(*inputs(name, dtype)).dtype == network(*inputs(name, dtype)).dtype == dtype


@SOME
def test_autocast_gives_what_it_gave(name):
    network = build(name)
    converted = convert(name, network)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert converted(*inputs(name)).dtype == network(*inputs(name)).dtype


def test_it_maps_and_is_called_with_other_parameters():
    network = lresnet.lorentzify(Recurrent())
    x = torch.randn(4, 8)
    torch.testing.assert_close(torch.vmap(network)(x), network(x))
    zeros = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
    assert torch.func.functional_call(network, zeros, (x,)).shape == x.shape


def test_torch_export_takes_it():
    converted = lresnet.lorentzify(Basic(4, 4).eval())
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(torch.export.export(converted, (x,)).module()(x), converted(x))


# --- axes, widths, names ------------------------------------------------------------------------------------------


def test_axes_widths_and_names_of_a_resnet():
    converted = lresnet.lorentzify(resnet())
    assert residuals(converted).keys() == {"1.residual", "2.residual", "3.residual", "4.residual"}
    assert {module.dim for module in residuals(converted).values()} == {1}
    assert float(converted[1].manifold.K) == -1 / 16
    assert all(module.manifold is converted[1].manifold for module in residuals(converted).values())


def test_axes_widths_and_names_of_a_transformer():
    converted = convert("pre-norm")
    names = {f"layers.{i}.{name}" for i in (0, 1) for name in ("residual", "residual_2")}
    assert residuals(converted).keys() == names
    assert {module.dim for module in residuals(converted).values()} == {-1}
    assert float(converted.layers[0].manifold.K) == -1 / 8


def test_a_loop_over_layers_has_a_residual_for_each():
    assert residuals(lresnet.lorentzify(Deep())).keys() == {"residual.0", "residual.1", "residual.2"}
    assert residuals(lresnet.lorentzify(Recurrent())).keys() == {"residual"}  # one cell, one residual


def test_a_list_of_pairs_of_layers_in_a_loop():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            pairs = (nn.ModuleList([nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.ReLU())]) for _ in range(2))
            self.layers = nn.ModuleList(pairs)

        def forward(self, x):
            for attention, mlp in self.layers:
                x = attention(x) + x
                x = mlp(x) + x
            return x

    network, x = Pairs(), torch.randn(2, 6)
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))
    names = {f"{name}.{i}" for name in ("residual", "residual_2") for i in (0, 1)}
    assert residuals(lresnet.lorentzify(network)).keys() == names


def test_arms_of_a_condition_share_a_residual():
    for first in (True, False):
        converted = lresnet.lorentzify(nn.TransformerEncoderLayer(8, 2, norm_first=first))
        assert residuals(converted).keys() == {"residual", "residual_2"}


def test_where_the_axis_is_not_to_be_seen_it_is_asked_for():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(4, 4, 1)

        def forward(self, x):
            return self.conv(x.transpose(1, 2)).transpose(1, 2)

    class Around(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

        def forward(self, x):
            return x + self.f(x)

    both = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Linear(4, 4))
    for module, reason in (
        (ConvNeXt(4), r"ConvNeXt: its forward calls permute, which may change"),
        (Around(both), r"Around: Conv2d has channels along axis 1, Linear along the last one"),
        (Around(nn.ReLU()), r"Around: its branch has no convolution, linear layer or norm"),
        (Around(Turned()), r"Around: transpose in Turned.forward may change the order of axes for Conv1d"),
    ):
        with pytest.raises(ValueError, match=rf"(?s)is not to be seen in.*{reason}.*Say dim=1"):
            lresnet.lorentzify(module)
        assert residuals(lresnet.lorentzify(module, dim=-1, curvature=-1.0))["residual"].dim == -1


def test_axes_for_parts_of_a_network():
    network = nn.ModuleDict({"stem": ConvNeXt(8), "blocks": nn.ModuleList([PreNorm(8), ConvNeXt(8)])})
    found = residuals(lresnet.lorentzify(network, dim={"stem": 1, "blocks": 2, "blocks.1": 3}))
    assert {name: module.dim for name, module in found.items()} == {
        "stem.residual": 1, "blocks.0.residual": 2, "blocks.0.residual_2": 2, "blocks.1.residual": 3,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"no block is found at 'block'; they are at stem, blocks.0, blocks.1"):
        lresnet.lorentzify(network, dim={"block": 1})
    with pytest.raises(TypeError, match="dim must be a number"):
        lresnet.lorentzify(network, dim="last")


def test_a_name_that_is_taken_is_left_alone():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.residual, self.manifold = nn.Linear(6, 6), "flat"

        def forward(self, x):
            self.lorentz_residual = x.mean()
            return x + self.residual(x)

    network, x = Named(), torch.randn(2, 6)
    converted = lresnet.lorentzify(network, residual="space")
    assert torch.equal(converted(x), network(x))
    assert isinstance(converted.residual, nn.Linear)
    assert converted.manifold == "flat"
    assert residuals(lresnet.lorentzify(network)).keys() == {"lorentz_residual_of_2"}


def test_a_learned_curvature_has_one_owner():
    manifold = lresnet.Lorentz(-0.5, learnable=True)
    converted = lresnet.lorentzify(resnet(), curvature=manifold)
    assert [name for name, _ in converted.named_parameters() if "kappa" in name] == ["1.manifold.log_kappa"]
    converted(*inputs("resnet")).square().mean().backward()
    assert manifold.log_kappa.grad is not None


def test_options_and_names_of_residuals():
    converted = lresnet.lorentzify(resnet(), weight=0.5, scale=None)
    assert converted[1].residual.scale is None
    assert float(converted[1].residual.weight) == 0.5
    for kind in lresnet.residual.RESIDUALS:
        assert lresnet.lorentzify(resnet(), residual=kind)(*inputs("resnet")).isfinite().all()


# --- what stays ---------------------------------------------------------------------------------------------------


class Count(nn.Module):
    """Private names, super(), arguments that may be missing, control flow, defaults, a closure, other methods."""

    made = 0

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layer, self.__calls = nn.Linear(width, width), 0

    def extra_repr(self):
        return f"calls={self.__calls}"

    def forward(self, x, mask=None, *, times: int = 1):
        super().train(self.training)
        self.__calls += 1
        if isinstance(x, torch.Tensor) and x.sum() > 1e9:
            return x
        for _ in range(times):
            with torch.no_grad():
                y = self.layer(x)
            x = x + (y if mask is None else y * mask)
        return x


def test_python_stays_as_written():
    network, x = Count(), torch.randn(2, 6, requires_grad=True)
    converted = lresnet.lorentzify(network, residual="space")
    for arguments, options in (((x,), {}), ((x, x[0]), {"times": 3}), ((x + 1e9,), {})):
        assert torch.equal(converted(*arguments, **options), network(*arguments, **options))
    assert converted(x).sum().backward() is None
    assert converted.layer.weight.grad is None  # no_grad
    assert "calls=4" in repr(converted)
    assert isinstance(converted, Count)
    assert Count.forward.__kwdefaults__ == type(converted).forward.__kwdefaults__ == {"times": 1}


def test_a_closure_and_a_decorator_stay():
    count = itertools.count()

    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        @torch.no_grad()
        def forward(self, x):
            next(count)
            return x + self.layer(x)

    x = torch.randn(2, 6, requires_grad=True)
    assert not lresnet.lorentzify(Counted())(x).requires_grad
    assert next(count) == 1


def test_an_error_points_to_the_line_of_the_source():
    converted = lresnet.lorentzify(Recurrent())
    try:
        converted(torch.randn(2, 9))
    except RuntimeError as error:
        found = [frame for frame in traceback.extract_tb(error.__traceback__) if "own_networks" in frame.filename]
    assert [frame.line for frame in found] == ["x = x + self.cell(x).tanh()"]


def test_a_sum_in_another_method():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward_features(self, x):
            return x + self.layer(x)

        def forward(self, x):
            return self.head(self.forward_features(x))

    network, x = Outer(), torch.randn(2, 6)
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual"}
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))


def test_sums_in_place():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            y = self.layer(x)
            y.add_(x)
            z = self.layer(y).add_(y)
            z += self.layer(z)
            return z

    network, x = InPlace(), torch.randn(2, 6)
    converted = lresnet.lorentzify(network, residual="space")
    assert torch.equal(converted(x), network(x))
    assert len(residuals(lresnet.lorentzify(network))) == 3
    assert (lresnet.lorentzify(network, curvature=-1.0)(x) - network(x)).abs().max() > 0.1
    with torch.autocast("cpu", dtype=torch.bfloat16):  # the sum has the dtype of what it is written into
        assert converted(x).dtype == network(x).dtype


def test_the_skip_connection_has_the_weight_1():
    class Second(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return self.layer(x) + x

    x = torch.randn(3, 6)
    torch.testing.assert_close(lresnet.lorentzify(Second(), curvature=-1.0, weight=0.0, scale=1.0)(x), x)


def test_a_block_that_stands_twice_stays_one():
    block = Basic(8, 8)
    converted = lresnet.lorentzify(nn.Sequential(block, nn.ReLU(), block))
    assert converted[0] is converted[2]
    assert len(residuals(converted)) == 1


def test_a_block_within_a_block():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Recurrent()

        def forward(self, x):
            return x + self.inner(x)

    network, x = Outer(), torch.randn(3, 8)
    assert torch.equal(lresnet.lorentzify(network, residual="space")(x), network(x))
    assert residuals(lresnet.lorentzify(network)).keys() == {"residual", "inner.residual"}


def test_hooks_and_modes_are_kept():
    network, seen = resnet().eval(), []
    network[1].register_forward_hook(lambda module, given, found: seen.append(found.shape))
    converted = lresnet.lorentzify(network)
    assert not any(module.training for module in converted.modules())
    converted(*inputs("resnet"))
    assert seen == [(4, 8, 7, 7)]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_fused_path_of_torchs_encoder_is_off(batch_first, norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2)
    converted = lresnet.lorentzify(encoder, curvature=-1.0, residual="parallel_transport")
    x, padding = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    x = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        trained = converted.train()(x, src_key_padding_mask=padding)
        evaluated = converted.eval()(x, src_key_padding_mask=padding)
        flat = encoder.eval()(x)
    assert torch.equal(trained, evaluated)
    assert (converted(x) - flat).abs().max() > 0.1


# --- mistakes -----------------------------------------------------------------------------------------------------


class Unclear(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.f(x) + self.g(x)


class Derived(Recurrent):
    def forward(self, x):
        return super().forward(x) * 2


class Loop(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = x + layer(x)
        return x


def test_nothing_found():
    with pytest.raises(ValueError, match=r"no sum .* found in Sequential: the code of 0 modules was looked at"):
        lresnet.lorentzify(nn.Sequential(nn.Linear(8, 8)))
    with pytest.raises(
        ValueError, match=r"(?s)the code of 1 module .*self.f\(x\) \+ self.g\(x\) in Unclear: both sides"
    ):
        lresnet.lorentzify(Unclear())
    replaced = Recurrent()
    replaced.forward = lambda x: x + replaced.cell(x)
    with pytest.raises(ValueError, match=r"the forward of this Recurrent was replaced"):
        lresnet.lorentzify(replaced)


def test_all_that_is_left_is_told_at_once():
    with pytest.warns(UserWarning, match="left as they are in Sequential") as caught:
        lresnet.lorentzify(nn.Sequential(Recurrent(), Unclear(), Unclear(), Derived()))
    (warning,) = caught
    assert str(warning.message).count("in Unclear: both sides are computed from one value") == 1
    assert "x + self.cell(x).tanh() in Derived: Derived calls it by super()" in str(warning.message)


def test_a_block_that_goes_over_all_its_parts_is_refused():
    with pytest.raises(ValueError, match=r"Loop: .*test_conversion.py:\d+ goes over all parts of the block"):
        lresnet.lorentzify(Loop(nn.Linear(8, 8)))


def test_what_is_no_network_of_sums_any_more():
    network = resnet()
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got builtin"):
        lresnet.lorentzify(torch.relu)
    with pytest.raises(ValueError, match="computes on a manifold already"):
        lresnet.lorentzify(lresnet.lorentzify(network, residual="space"))
    with pytest.raises(ValueError, match="computes on a manifold already"):
        lresnet.lorentzify(lresnet.create_model("lorentz_mlp", in_features=4, num_classes=2))
    with pytest.raises(ValueError, match="first lorentzify, then compile"):
        lresnet.lorentzify(torch.compile(network, backend="eager"))
    with pytest.raises(ValueError, match="a traced graph"):
        lresnet.lorentzify(torch.fx.symbolic_trace(Recurrent()))
    with pytest.raises(ValueError, match="first lorentzify, then wrap"):
        lresnet.lorentzify(nn.DataParallel(network))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torchscript_is_refused_before_and_after():
    with pytest.raises(ValueError, match="is TorchScript, which has no source"):
        lresnet.lorentzify(torch.jit.trace(Recurrent(), torch.randn(2, 8)))
    with pytest.raises(TypeError, match=r"torch.jit.script reads source files, where Recurrent still has its sums"):
        torch.jit.script(lresnet.lorentzify(Recurrent()))


def test_other_mistakes():
    network = resnet()
    with pytest.raises(ValueError, match="curvature must be a negative number"):
        lresnet.lorentzify(network, curvature="learned")
    with pytest.raises(ValueError, match="curvature"):
        lresnet.lorentzify(network, curvature=1.0)
    with pytest.raises(ValueError, match="did you mean"):
        lresnet.lorentzify(network, residual="lorenz")
    with pytest.raises(TypeError, match="has no option 'wieght'"):
        lresnet.lorentzify(network, wieght=1.0)

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return x + self.act(x)

    with pytest.raises(ValueError, match=r"the sum in 0 \(Bare\) .* not to be seen from its layers; say the curvature"):
        lresnet.lorentzify(nn.Sequential(Bare()), dim=-1)
