"""The pages under docs/migrate: facts that their code blocks do not check."""

import re
from pathlib import Path

import geoopt
import pytest
import torch

import lresnet

PAGES = Path(__file__).parents[2] / "docs" / "migrate"
ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


def curvature_rows() -> dict[str, list[str]]:
    """Return the cells of the table of conventions by the text of the first cell."""
    section = (PAGES / "index.md").read_text().split("## Curvature\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in ROW.findall(section)]
    return {cells[0]: cells[1:] for cells in rows[2:]}


def constructor(library: str) -> str:
    """Return the first call of lresnet in the last column of the row that names ``library``."""
    (cells,) = [cells for name, cells in curvature_rows().items() if library in name]
    return re.findall(r"`([^`]+)`", cells[-1])[0]


@pytest.mark.parametrize(
    ("library", "names", "square"),
    [
        ("geoopt, `Lorentz(k)`", {"k": 4.0}, -4.0),
        ("HyperCore", {"c": 4.0}, -4.0),
        ("HGCN", {"c": 4.0}, -0.25),
        ("HyboNet", {}, -1.0),
        ("hyperbolix", {"c": 4.0}, -0.25),
        ("LResNet's released code", {"c": 4.0}, -4.0),
        ("lresnet, `Lorentz", {"K": -4.0}, -0.25),
    ],
)
def test_the_curvature_table_gives_points_with_the_square_that_the_other_library_uses(library, names, square):
    M = eval(constructor(library), {"Lorentz": lresnet.Lorentz, **names})
    p = M.lift(torch.randn(5, 3, dtype=torch.float64))
    torch.testing.assert_close(-p[:, 0].square() + p[:, 1:].square().sum(-1), torch.full((5,), square).double())


def test_the_curvature_table_converts_the_ball_of_geoopt():
    M = eval(constructor("PoincareBall(c)"), {"Lorentz": lresnet.Lorentz, "c": 0.25})
    x, y = torch.randn(2, 5, 3, dtype=torch.float64)
    ball = geoopt.PoincareBall(c=0.25)
    torch.testing.assert_close(ball.dist(M.to_poincare(x), M.to_poincare(y)), M.dist(x, y))


def test_the_time_of_a_tangent_vector_is_the_one_of_the_points_table():
    M, G = lresnet.Lorentz(-0.25), geoopt.Lorentz(k=torch.tensor(4.0, dtype=torch.float64))
    x = torch.randn(5, 3, dtype=torch.float64)
    v = G.proju(M.lift(x), torch.randn(5, 4, dtype=torch.float64))
    torch.testing.assert_close((x * v[:, 1:]).sum(-1) / M.time(x), v[:, 0])


def test_geoopt_s_random_normal_ignores_std():
    G = geoopt.Lorentz(k=1.0)
    assert max(float(G.dist0(G.random_normal(100, 4, std=std)).max()) for std in (0.01, 100.0)) < 1 + 1e-4
    assert float(G.dist0(G.random_normal(100, 4, std=0.01)).max()) > 0.5


def test_a_learned_k_of_geoopt_can_become_negative():
    G = geoopt.Lorentz(k=1.0, learnable=True)
    assert isinstance(G.k, torch.nn.Parameter)
    (5 * G.k).backward()
    with torch.no_grad():
        G.k -= G.k.grad  # a step of gradient descent
    assert float(G.k.detach()) < 0


def test_the_head_of_the_pyg_page_is_affine_for_small_curvature():
    head = lresnet.nn.LorentzMLR(4, 3, manifold=lresnet.Lorentz(-1e-10), dtype=torch.float64)
    torch.nn.init.normal_(head.bias)
    x, z, r = torch.randn(5, 4, dtype=torch.float64), head.weight, head.bias
    torch.testing.assert_close(head(x), 2 * x @ z.mT - 4 * r * z.norm(dim=-1), rtol=1e-4, atol=1e-4)


def test_pages_name_public_functions_only():
    names = {
        name
        for page in PAGES.glob("*.md")
        for name in re.findall(r"lresnet((?:\.[A-Za-z_][A-Za-z_0-9]*)+)", page.read_text())
    }
    assert len(names) > 20
    for name in names:
        found = lresnet
        for part in name.strip(".").split("."):
            found = getattr(found, part)
