"""Gradients of a residual and the norm after it, by one kernel: against float64, and in compiled transformer blocks."""

import itertools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils import parametrize

from lresnet import Lorentz
from lresnet.functional import lorentz_residual
from lresnet.kernels import disabled, enabled
from lresnet.kernels.tiles import Tile
from lresnet.nn import LorentzLayerNorm, LorentzRMSNorm, LorentzTransformerBlock
from tests.kernels.cases import DEVICE, on_device, row_errors
from tests.residual.common import MORE_FAMILIES, more_pairs, normals

pytest.importorskip("triton")

from lresnet.kernels import residual_norm

EPS = 1e-6
NAMES = ("x", "y", "norm", "w", "gamma", "kappa")
on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="inductor's code for GPUs is tested")
# torch.compile warns about itself and about TF32.
_WARNINGS = (".*should not be instantiated.*:DeprecationWarning", ".*TensorFloat32.*", ".*_prims_common.*")


def quiet(function):
    for message in _WARNINGS:
        function = pytest.mark.filterwarnings(f"ignore:{message}")(function)
    return function


def by_kernel(gz, gr, x, y, norm, w, gamma, kappa, tile=None):
    gx, gy, lines = residual_norm.backward(gz, gr, x, y, norm, w, gamma, kappa, EPS, tile=tile)
    sums, n = lines.double().sum(0), x.shape[-1]
    return [gx, gy, sums[:n], *sums[n:]]


def by_formula(gz, gr, *arguments):
    """Return the gradients in float64, with None for a scale that is not given."""
    leaves = [None if t is None else t.detach().double().requires_grad_() for t in arguments]
    x, y, norm, w, gamma, kappa = leaves
    z = lorentz_residual(x, y, w, gamma, K=-kappa)
    rows = z * (z.square().mean(-1, keepdim=True) + EPS).rsqrt() * norm
    given = [t for t in leaves if t is not None]
    found = iter(torch.autograd.grad((z * gz.double()).sum() + (rows * gr.double()).sum(), given))
    return [None if t is None else next(found) for t in leaves]


def random_arguments(rows, n, gamma=1.3, K=-0.7, seed=0):
    """Return gz, gr and the six arguments."""
    gz, gr, x, y = (normals(rows, n, seed=4 * seed + i) for i in range(4))
    norm, scale = 1 + 0.3 * normals(n, seed=9), None if gamma is None else torch.tensor(gamma).to(DEVICE)
    gz, gr, x, y, norm, w, kappa = on_device(gz, gr, x, y, norm, torch.tensor(0.37), torch.tensor(-K))
    return [gz, gr, x, y, norm, w, scale, kappa]


def chained_by_kernel(arguments, x, y, w, gamma, tile=None):
    """Return the gradients for a point x that is the residual of these x and y."""
    gz, gr, _, branch, norm, *rest = arguments
    gx, gy, lines = residual_norm.backward(gz, gr, x, branch, norm, *rest, EPS, y, w, gamma, tile=tile)
    sums, n = lines.double().sum(0), x.shape[-1]
    return [gx, gy, sums[:n], *sums[n:]]


def chained_by_formula(arguments, x, y, w, gamma):
    gz, gr, _, *rest, kappa = arguments
    wide = [None if t is None else t.double() for t in (x, y, w, gamma)]
    return by_formula(gz, gr, lorentz_residual(*wide, K=-kappa.double()), *rest, kappa)


def compare(arguments, tile=None):
    assert_accurate(by_kernel(*arguments, tile=tile), by_formula(*arguments))


def assert_accurate(gradients, expected):
    for name, found, exact in zip(NAMES, gradients, expected, strict=True):
        if exact is None:
            continue
        if name in "xy":
            assert row_errors(found, exact).max() <= 1e-5, (name, float(row_errors(found, exact).max()))
        else:  # the sum over rows may cancel
            assert (found - exact).abs().max() <= 5e-5 * exact.abs().max(), (name, found, exact)


# --- the kernel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", MORE_FAMILIES)
@pytest.mark.parametrize("K", [-1e-4, -0.1, -1.0, -10.0])
def test_gradients_of_points_are_accurate_from_the_origin_to_large_norms(family, K):
    # Points on one ray far from the origin have gradients that float32 cannot represent.
    far = 1e3 if family in ("random", "near", "equal", "zero", "zero skip") else 10.0
    for norm, w in itertools.product((1e-3, 1e-1, 1.0, 1e2, 1e4), (1.0, 0.37)):
        radius = norm * (-K) ** 0.5
        if radius > far:
            continue
        x, y = on_device(*(t.float() for t in more_pairs(family, norm, count=24)))
        gz, gr, _, _, weight, _, gamma, _ = random_arguments(24, 16)
        gr = gr * max(1.0, norm)  # of the size of gz once it has passed the norm
        arguments = gz, gr, x, y, weight, torch.tensor(w, device=DEVICE), gamma, torch.tensor(-K, device=DEVICE)
        for name, found, exact in zip("xy", by_kernel(*arguments)[:2], by_formula(*arguments)[:2], strict=True):
            bar = 2e-5 if radius <= 10 else 3e-4
            errors = row_errors(found, exact)
            assert errors.max() <= bar, (name, norm, w, float(errors.max()))


@pytest.mark.parametrize("family", MORE_FAMILIES)
@pytest.mark.parametrize("K", [-1e-4, -0.1, -1.0, -10.0])
def test_a_point_is_recomputed_from_its_branches_from_the_origin_to_large_norms(family, K):
    far = 1e3 if family in ("random", "near", "equal", "zero", "zero skip") else 10.0
    one, number = torch.tensor(1.0, device=DEVICE), torch.tensor(0.37, device=DEVICE)
    for norm, w in itertools.product((1e-3, 1e-1, 1.0, 1e2, 1e4), (one, number)):
        radius = norm * (-K) ** 0.5
        if radius > far:
            continue
        x, y = on_device(*(t.float() for t in more_pairs(family, norm, count=24)))
        gz, gr, _, other, *rest = random_arguments(24, 16, K=K)
        gr = gr * max(1.0, norm)
        other = 0.25 * norm * other  # of the size of the points
        other[::3] = lorentz_residual(x, y, w, 1 + w, K=K)[::3]  # the branches of the second residual are equal
        arguments = gz, gr, x, other, *rest
        found, exact = chained_by_kernel(arguments, x, y, w, 1 + w), chained_by_formula(arguments, x, y, w, 1 + w)
        bars = torch.full((24,), 2e-5 if radius <= 10 else 3e-4, dtype=torch.float64, device=DEVICE)
        bars[::3] += 1e-7 * radius**2  # there the gradient changes by this much if x changes in its last digit
        for name, own, want in zip("xy", found, exact, strict=False):
            errors = row_errors(own, want)
            assert (errors <= bars).all(), (name, norm, float(w), float((errors / bars).max()))


@pytest.mark.parametrize("gamma", [None, 1.3])
@pytest.mark.parametrize("n", [1, 3, 64, 384, 512, 1000])
def test_all_gradients_at_every_width(n, gamma):
    arguments = random_arguments(7, n, gamma)
    compare(arguments)
    x, y = on_device(normals(7, n, seed=21), normals(7, n, seed=22))
    first = x, y, torch.tensor(0.8, device=DEVICE), None if gamma is None else torch.tensor(1.8, device=DEVICE)
    assert_accurate(chained_by_kernel(arguments, *first), chained_by_formula(arguments, *first))


@pytest.mark.parametrize("tile", [Tile(32, 16, 1, programs=2), Tile(4, 16, 4), Tile(1, 16, 1, programs=3, stages=2)])
def test_a_point_is_recomputed_in_every_tile_and_its_gradient_has_its_dtype(tile):
    gz, gr, _, branch, *rest = random_arguments(33, 16)
    w, scale = torch.tensor(0.8, device=DEVICE), torch.tensor(1.8, device=DEVICE)
    for wide, narrow in ((torch.float32, torch.bfloat16), (torch.bfloat16, torch.bfloat16)):
        x, y = normals(33, 16, seed=21).to(DEVICE, wide), normals(33, 16, seed=22).to(DEVICE, narrow)
        arguments = gz.to(wide), gr.to(narrow), x, branch.to(narrow), *rest
        found, exact = chained_by_kernel(arguments, x, y, w, scale, tile), chained_by_formula(arguments, x, y, w, scale)
        assert [t.dtype for t in found[:2]] == [wide, narrow]
        for own, other in zip(found, exact, strict=True):
            error = (own.double() - other).norm() / other.norm()
            assert error <= (1e-5 if own.dtype == wide == torch.float32 else 2e-2), float(error)


def test_a_point_whose_branches_are_zeros_or_subnormal_has_finite_gradients():
    sizes = torch.tensor([0.0, 1e-45, 1e-38, 1e-30, 1e-20, 1.0, 1e4])
    a, b, c = (t.flatten()[:, None] for t in torch.meshgrid(sizes, sizes, sizes, indexing="ij"))
    gz, gr, _, _, *rest = random_arguments(a.numel(), 5)
    x, y, branch = on_device(*(s * normals(a.numel(), 5, seed=i) for i, s in enumerate((a, b, c))))
    for gradient in chained_by_kernel((gz, gr, x, branch, *rest), x, y, rest[1], rest[2]):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("rows", [1, 31, 33, 100])
@pytest.mark.parametrize("tile", [Tile(32, 16, 1, programs=2), Tile(4, 16, 4), Tile(1, 16, 1, programs=3, stages=2)])
def test_every_number_of_rows_and_every_tile(rows, tile):
    compare(random_arguments(rows, 16), tile=tile)


@pytest.mark.parametrize("dtypes", ["x", "y", "all"])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_gradients_are_rounded_once(half, dtypes):
    gz, gr, x, y, *rest = random_arguments(6, 64)
    gr, y = gr.to(half), y if dtypes == "x" else y.to(half)
    x = x if dtypes == "y" else x.to(half)
    gz = gz.to(torch.promote_types(x.dtype, y.dtype))
    found, exact = by_kernel(gz, gr, x, y, *rest), by_formula(gz, gr, x, y, *rest)
    for one, other, given in zip(found, exact, (x, y), strict=False):
        assert one.dtype == given.dtype
        slack = 1e-5 * other.norm(dim=-1, keepdim=True)
        # A whole unit: the interpreter truncates to bfloat16.
        assert ((one.double() - other).abs() <= torch.finfo(given.dtype).eps * other.abs() + slack).all()
    for one, other in zip(found[2:], exact[2:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_zeros_and_subnormals_have_finite_gradients():
    sizes = torch.tensor([0.0, 1e-45, 1e-40, 1e-38, 1e-30, 1e-20, 1e-3, 1.0, 1e4])
    a, b = (t.flatten()[:, None] for t in torch.meshgrid(sizes, sizes, indexing="ij"))
    gz, gr, _, _, *rest = random_arguments(81, 5)
    for x, y in ((a * normals(81, 5), b * normals(81, 5, seed=1)), (a * normals(81, 5), a * normals(81, 5))):
        for gradient in by_kernel(gz, gr, *on_device(x, y), *rest):
            assert gradient.isfinite().all()


def test_rows_of_zeros_pass_the_gradients_on():
    gz, gr, x, _, norm, w, gamma, kappa = random_arguments(3, 8)
    zero = torch.zeros_like(x)
    gx, gy, *_ = by_kernel(gz, gr, zero, zero, norm, w, gamma, kappa)
    total = 1.3 / 1.37 * (gz + gr * norm / EPS**0.5)
    torch.testing.assert_close(gx, total)
    torch.testing.assert_close(gy, 0.37 * total)


def test_arguments_that_are_not_contiguous_are_copied():
    arguments = random_arguments(6, 12)
    spread = [t.repeat_interleave(2, -1)[..., ::2] for t in arguments[:4]]
    for found, expected in zip(by_kernel(*spread, *arguments[4:]), by_kernel(*arguments), strict=True):
        assert torch.equal(found, expected)


def test_two_runs_give_the_same_bits():
    arguments = random_arguments(50, 16)
    for one, other in zip(by_kernel(*arguments), by_kernel(*arguments), strict=True):
        assert torch.equal(one, other)


# --- compiled blocks --------------------------------------------------------------------------------------------------


def block(K=-0.02, *, learnable=False, features=32, **options):
    torch.manual_seed(0)
    made = LorentzTransformerBlock(features, num_heads=2, manifold=Lorentz(K, learnable), **options).to(DEVICE)
    made.attention.manifold.to(DEVICE)
    with torch.no_grad():
        made.mlp_norm.weight.add_(0.2 * torch.randn(features, device=DEVICE))
        if isinstance(getattr(made.attention_residual, "raw_weight", None), torch.nn.Parameter):
            made.attention_residual.raw_weight.fill_(-0.7)
    return made


def run(module, call, x, autocast=False):
    """Return the result and the gradients of x, of the parameters and of the curvature."""
    kappa = dict(module.attention.manifold.named_parameters())
    leaves = {"x": x.detach().clone().requires_grad_(), **dict(module.named_parameters()), **kappa}
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        y = call(leaves["x"], is_causal=True)
    weights = torch.linspace(-1, 1, y.numel(), device=y.device).reshape(y.shape)
    return y.detach(), dict(zip(leaves, torch.autograd.grad((y * weights).sum(), list(leaves.values())), strict=True))


def chained(x, dtype=torch.bfloat16):
    """Return the arguments with which a block computes the norm after it."""
    norm = LorentzRMSNorm(x.shape[-1], manifold=Lorentz(-1.0)).to(DEVICE)
    with torch.no_grad():
        norm.weight.add_(0.2 * torch.randn(x.shape[-1], generator=torch.Generator().manual_seed(3)).to(DEVICE))
    return {"normed": norm(x).detach().to(dtype), "next_norm": norm, "next_dtype": dtype}


def run_chained(module, call, x, options, autocast=False):
    """Return the two results, joined, and the gradients of both arguments and of all parameters."""
    kappa = dict(module.attention.manifold.named_parameters())
    leaves = {"x": x.detach().clone().requires_grad_(), "normed": options["normed"].detach().clone().requires_grad_()}
    leaves |= {**dict(module.named_parameters()), "next": options["next_norm"].weight, **kappa}
    del leaves["attention_norm.weight"]
    with torch.autocast(DEVICE, torch.bfloat16, enabled=autocast):
        y, rows = call(leaves["x"], is_causal=True, **options | {"normed": leaves["normed"]})
    weights = torch.linspace(-1, 1, y.numel(), device=y.device).reshape(y.shape)
    total = (y * weights).sum() + (rows * weights.flip(-1)).sum()
    found = torch.autograd.grad(total, list(leaves.values()))
    return torch.cat([y.detach(), rows.detach()]), dict(zip(leaves, found, strict=True))


def without_kernel(monkeypatch):
    monkeypatch.setattr("lresnet.nn.residual_norm._is_supported", lambda *_: False)


def launches(monkeypatch):
    """Record the launches of the kernel from now on; on a GPU the calls that add one to a graph."""
    seen, original = [], residual_norm.backward

    def backward(*arguments):
        if type(arguments[0]) is not FakeTensor:  # which asks for shapes
            seen.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(residual_norm, "backward", backward)
    return seen


def assert_same(found, expected, bound):
    torch.testing.assert_close(found[0], expected[0], rtol=bound, atol=bound * float(expected[0].abs().max()))
    for name, gradient in expected[1].items():
        error = (found[1][name] - gradient).norm() / gradient.norm()
        assert error <= bound, (name, float(error))


def slow(*values):
    """Return parameters of tests that ``make test`` leaves out: each compiles a block, which takes a second."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


OPTIONS = [
    {"learnable": True},
    *slow({}, *({"residual_options": {name: value}} for name, value in (("scale", None), ("weight", 0.5),
                                                                       ("scale", "learned")))),
]  # fmt: skip


@quiet
@pytest.mark.parametrize("options", OPTIONS)
def test_a_traced_block_has_the_gradients_of_the_formulas(options, monkeypatch):
    torch.compiler.reset()
    module, x = block(**options), normals(2, 9, 32).to(DEVICE)
    with disabled():
        expected = run(module, module, x)
    seen = launches(monkeypatch)
    with enabled():
        found = run(module, torch.compile(module, backend="aot_eager", fullgraph=True), x)
    assert seen
    assert_same(found, expected, 1e-4)


@quiet
@pytest.mark.parametrize("options", OPTIONS)
def test_a_traced_block_with_the_next_norm_has_the_gradients_of_the_formulas(options, monkeypatch):
    torch.compiler.reset()
    module, x = block(**options), normals(2, 9, 32).to(DEVICE)
    given = chained(x, torch.float32)
    with disabled():
        expected = run_chained(module, module, x, given)
    seen = launches(monkeypatch)
    with enabled():
        found = run_chained(module, torch.compile(module, backend="aot_eager", fullgraph=True), x, given)
    assert [a[9] is not None for a in seen] == [True, False]  # the last residual comes first
    assert_same(found, expected, 1e-4)


@quiet
@pytest.mark.parametrize("change", ["manifold", "sum", *slow("hook", "layer norm")])
def test_a_next_norm_that_the_kernel_does_not_compute_takes_the_formulas(change, monkeypatch):
    torch.compiler.reset()
    module, x = block(**{"residual": "euclidean"} if change == "sum" else {}), normals(2, 9, 32).to(DEVICE)
    given = chained(x, torch.float32)
    if change == "hook":
        given["next_norm"].register_forward_hook(lambda _, __, rows: 2 * rows)
    elif change == "manifold":
        module.mlp_residual.__dict__["manifold"] = Lorentz(-0.3)
    elif change == "layer norm":
        given["next_norm"] = LorentzLayerNorm(32, manifold=Lorentz(-1.0)).to(DEVICE)
    with disabled():
        expected = run_chained(module, module, x, given)
    seen = launches(monkeypatch)
    with enabled():
        found = run_chained(module, torch.compile(module, backend="aot_eager"), x, given)
    assert bool(seen) == (change != "sum")  # the norm in the block
    assert_same(found, expected, 1e-4)


@quiet
def test_autocast_rounds_the_next_norm_once(monkeypatch):
    module, x = block(), normals(2, 9, 32).to(DEVICE)
    seen, found, given = launches(monkeypatch), [], chained(x)
    with enabled():
        for _ in range(2):
            torch.compiler.reset()
            call = torch.compile(module, backend="aot_eager", fullgraph=True)
            found.append(run_chained(module, call, x, given, autocast=True))
            without_kernel(monkeypatch)
    gz, gr, skip, branch = seen[0][:4]
    assert [t.dtype for t in (gz, gr, skip, branch)] == [torch.float32, torch.bfloat16, torch.float32, torch.bfloat16]
    assert seen[0][9].dtype == torch.bfloat16
    assert torch.equal(found[0][0], found[1][0])
    assert_same(*found, 2e-2)


@pytest.mark.slow
@quiet
def test_autocast_rounds_the_norm_once_and_the_kernel_reads_rounded_gradients(monkeypatch):
    module, x = block(), normals(2, 9, 32).to(DEVICE)
    seen = launches(monkeypatch)
    found = []
    with enabled():
        for _ in range(2):
            torch.compiler.reset()
            found.append(run(module, torch.compile(module, backend="aot_eager", fullgraph=True), x, autocast=True))
            without_kernel(monkeypatch)
    gz, gr, skip, branch = seen[0][:4]
    assert seen[0][9:] == (None, None, None)  # the skip branch is given, not computed again
    assert [t.dtype for t in (gz, gr, skip, branch)] == [torch.float32, torch.bfloat16, torch.float32, torch.bfloat16]
    assert torch.equal(found[0][0], found[1][0])
    assert_same(*found, 2e-2)


@quiet
def test_a_block_in_half_precision_and_a_block_without_gradients(monkeypatch):
    torch.compiler.reset()
    module, x = block(), normals(2, 9, 32).to(DEVICE)
    with enabled():
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
        seen, half, x = launches(monkeypatch), module.bfloat16(), x.bfloat16()
        found = run(half, torch.compile(half, backend="aot_eager", fullgraph=True), x)
        assert [t.dtype for t in seen[0][:5]] == [torch.bfloat16] * 5
        assert_same(found, run(half, half, x), 5e-2)


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


@quiet
@pytest.mark.parametrize("change", ["hook", "per point", *slow("forward", "parametrized", "layer norm", "norm last")])
def test_blocks_that_the_kernel_does_not_compute_take_the_formulas(change, monkeypatch):
    torch.compiler.reset()
    options = {"layer norm": {"norm": "layer"}, "norm last": {"norm_first": False}}.get(change, {})
    if change == "per point":
        options = {"residual_options": {"weight": torch.linspace(0.1, 1, 9).to(DEVICE)}}
    module, x = block(**options), normals(2, 9, 32).to(DEVICE)
    if change == "hook":
        module.mlp_norm.register_forward_hook(lambda _, __, rows: 2 * rows)
    elif change == "forward":
        own = module.attention_residual.forward
        module.attention_residual.forward = lambda x, y: 2 * own(x, y)
    elif change == "parametrized":
        parametrize.register_parametrization(module.mlp_norm, "weight", Doubled())
    with disabled():
        expected = run(module, module, x)
    seen = launches(monkeypatch)
    with enabled():
        found = run(module, torch.compile(module, backend="aot_eager"), x)
    assert not seen
    assert_same(found, expected, 1e-4)


@quiet
def test_a_replaced_perceptron_gets_the_norm_in_the_dtype_of_the_points(monkeypatch):
    torch.compiler.reset()
    module, x = block(), normals(2, 9, 32).to(DEVICE)
    module.mlp = torch.nn.Sequential(module.mlp)
    expected = run(module, module, x, autocast=True)
    seen = launches(monkeypatch)
    with enabled():
        found = run(module, torch.compile(module, backend="aot_eager", fullgraph=True), x, autocast=True)
    assert [t.dtype for t in seen[0][:2]] == [torch.float32] * 2
    assert_same(found, expected, 2e-2)


@quiet
@pytest.mark.parametrize("chains", [True, *slow(False)])
def test_the_result_of_the_residual_is_not_stored_for_the_backward_pass(chains, monkeypatch):
    """The partitioner of torch.compile computes it again; only the block's arguments and results may have its shape."""
    from functools import partial

    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    stored = []

    def compiler(graph, _):
        results = dict.fromkeys(t for t in graph.graph.find_nodes(op="output")[0].args[0] if t is not None)
        stored.append([t.meta["val"] for t in results])
        return make_boxed_func(graph.forward)

    def count() -> int:
        torch.compiler.reset()
        stored.clear()
        backend = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=lambda graph, _: make_boxed_func(graph.forward),
            partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
            decompositions=select_decomp_table(),
        )
        module, x = block(features=64), normals(2, 256, 64).to(DEVICE).requires_grad_()
        options = chained(x.detach()) if chains else {}
        with enabled(), torch.autocast(DEVICE, torch.bfloat16):
            torch.compile(module, backend=backend, fullgraph=True)(x, is_causal=True, **options)
        values = [t for t in stored[0] if isinstance(t, torch.Tensor)]
        assert sum(t.dtype == torch.float32 and t.shape == x.shape for t in values) == 2  # the argument and the result
        return sum(t.numel() * t.element_size() for t in values)

    fused = count()
    without_kernel(monkeypatch)
    assert fused <= count()


@on_a_gpu
@quiet
@pytest.mark.parametrize(("features", "autocast"), [(64, False), (384, False), (1024, False), (64, True), (384, True)])
def test_a_compiled_block_on_a_gpu_computes_what_it_computes_in_eager_mode(features, autocast, monkeypatch):
    torch.compiler.reset()
    module, x = block(-0.1 / features, features=features), normals(3, 67, features).to(DEVICE)
    expected = run(module, module, x, autocast)
    seen = launches(monkeypatch)
    found = run(module, torch.compile(module, fullgraph=True), x, autocast)
    assert seen
    assert_same(found, expected, 3e-2 if autocast else 1e-3)


@on_a_gpu
@quiet
def test_a_compiled_block_on_a_gpu_needs_no_more_memory_with_the_kernel(monkeypatch):
    x = normals(8, 512, 256).to(DEVICE)

    def peak() -> int:
        torch.compiler.reset()
        module = block(-0.1 / 256, features=256)
        compiled = torch.compile(module, fullgraph=True)
        run(module, compiled, x, autocast=True)
        torch.cuda.reset_peak_memory_stats()
        run(module, compiled, x, autocast=True)
        return torch.cuda.max_memory_allocated()

    fused = peak()
    without_kernel(monkeypatch)
    assert fused <= peak() + 4 * 2**20  # the lines of partial sums
