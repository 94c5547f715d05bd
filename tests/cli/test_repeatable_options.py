"""Options that may be repeated: their values accumulate."""

from pathlib import Path
from typing import Annotated

import pytest
from tyro.conf import Positional, arg

from lresnet import cli
from lresnet.cli.app import App, read_call


def parsed(*args: str) -> dict[str, object]:
    """Return the arguments that a verb gets from the command line."""
    found: dict[str, object] = {}
    app = App("Test.")

    @app.command
    def sow(
        field: Annotated[Positional[str], arg(metavar="FIELD")],
        plants: Annotated[Positional[tuple[str, ...]], arg(metavar="PLANT")] = (),
        seeds: Annotated[tuple[int, ...], arg(metavar="INT")] = (1, 2),
        tools: tuple[str, ...] | None = None,
        place: tuple[float, float] = (0.0, 0.0),
        depth: int = 3,
    ) -> int:
        found.update(field=field, plants=plants, seeds=seeds, tools=tools, place=place, depth=depth)
        return 0

    @app.command
    def reap() -> int:
        return 0

    assert read_call(app, "farm", ["sow", *args])() == 0
    return found


def test_an_omitted_option_has_its_default() -> None:
    plain = {"plants": (), "seeds": (1, 2), "tools": None, "place": (0.0, 0.0), "depth": 3}
    assert parsed("north") == {"field": "north"} | plain


def test_repeated_options_accumulate_in_order() -> None:
    found = parsed("north", "--seeds", "5", "6", "--tools=rake", "--seeds", "4", "--tools", "spade", "hoe", "--seeds=5")
    assert found["seeds"] == (5, 6, 4, 5)
    assert found["tools"] == ("rake", "spade", "hoe")
    assert parsed("--seeds", "7", "--depth", "1", "--seeds", "8", "north")["seeds"] == (7, 8)
    assert parsed("north", "--tools")["tools"] == ()  # the option without a value


def test_the_last_value_counts_for_other_options() -> None:
    found = parsed("north", "rye", "oats", "--place", "1", "2", "--depth", "4", "--place", "3", "-4", "--depth", "5")
    assert (found["plants"], found["place"], found["depth"]) == (("rye", "oats"), (3.0, -4.0), 5)


@pytest.mark.parametrize(
    ("verb", "option", "values"),
    [
        (["reproduce", "gnn"], "methods", ("lorentz", "tangent")),
        (["reproduce", "gnn"], "seeds", (0, 1)),
        (["bench", "gcn"], "cells", ("cora/nc", "disease/lp")),
        (["bench", "resnet"], "batch", (32, 64)),
        (["embed", "run"], "images", (Path("a.png"), Path("photos"))),
        (["plot", "ood", "run"], "ood", ("svhn,places", "photos")),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_options_of_the_verbs_accumulate(verb: list[str], option: str, values: tuple[object, ...]) -> None:
    words = [word for value in values for word in (f"--{option}", str(value))]
    call = read_call(cli._find_verb(verb[0]), "lresnet", [*verb[1:], *words])
    assert call.keywords[option] == values


def test_the_help_shows_the_default(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main(["ood", "--help"])
    out = capsys.readouterr().out
    assert "--ood SET,SET,..." in out
    assert "(default: svhn,places,textures)" in out
    assert "repeatable" not in out
