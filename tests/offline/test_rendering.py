"""The map stays small and readable whatever the number of nodes, and the waterfall ends at the winner.

All templates and static files are in the wheel.
"""

from __future__ import annotations

import colorsys
import re
from collections import Counter
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from extender.offline.rendering import asset, by_free_resource, by_verdict, waterfall_steps

ROOT = Path(__file__).parents[2]


def document(count: int, zones: int = 3) -> dict[str, Any]:
    nodes = [
        {
            "name": f"n{at}",
            "zone": f"z{at % zones}",
            "ready": at != 1,
            "allocatable": [8000],
            "requested": [at % 9 * 1000],
        }
        for at in range(count)
    ]
    return {"resources": ["cpu"], "nodes": nodes}


@pytest.mark.parametrize("zones", [1, 3, 500])
def test_five_thousand_nodes_are_some_dozens_of_elements(zones: int) -> None:
    drawn = by_free_resource(document(5000, zones), "cpu")
    assert sum(len(list(group.paths)) for group in drawn.groups) <= 12 * len(drawn.groups) <= 36
    squares = Counter(path.count("M") for group in drawn.groups for _, path in group.paths)
    assert sum(size * times for size, times in squares.items()) == 5000
    assert sum(key.nodes for key in drawn.legend) == 5000


def test_a_node_is_where_the_script_looks_for_it() -> None:
    drawn = by_free_resource(document(50), "cpu")
    for group, names in zip(drawn.groups, drawn.data["groups"], strict=True):
        assert [cell.name for cell in group.cells] == [name for name, _ in names]
        for at, cell in enumerate(group.cells):
            x, y = at % group.columns * 10, at // group.columns * 10
            assert f"M{x} {y}h" in dict(group.paths)[cell.shade]
            assert x < group.width
            assert y < group.height


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("gpu-a1", ["gpu-a1"]),
        ("ip-10-0-12-34.eu-west-1", ["ip-10-0-", "12-34.eu-", "west-1"]),
        ("a" * 25, ["a" * 10, "a" * 10, "a" * 5]),
        ("b-" * 30, ["b-b-b-b-b-"] * 3 + ["b-b-b-b-b…"]),
        ("", []),
    ],
)
def test_a_square_has_the_name_of_its_node(name: str, lines: list[str]) -> None:
    node = {"name": name, "zone": "", "ready": True, "allocatable": [1], "requested": [0]}
    drawn = by_free_resource({"resources": ["cpu"], "nodes": [node]}, "cpu")
    assert [list(each) for _, _, each in drawn.groups[0].names] == [lines]


def test_squares_that_are_too_small_have_no_name() -> None:
    assert not by_free_resource(document(5000), "cpu").is_named


@pytest.mark.parametrize("scheme", [0, 1])
def test_no_reason_for_a_refusal_has_the_colour_of_a_free_node_or_of_one_that_fits(scheme: int) -> None:
    colours = re.findall(r"--r\d: #(\w{2})(\w{2})(\w{2});", asset("page.css").decode())
    assert len(colours) == 14
    for red, green, blue in colours[7 * scheme :][:7]:
        hue, _, _ = colorsys.rgb_to_hsv(*(int(each, 16) / 255 for each in (red, green, blue)))
        assert not 60 / 360 < hue < 250 / 360, (red, green, blue)


@pytest.mark.parametrize(
    ("offered", "asked", "ready", "shade", "text"),
    [
        pytest.param(8000, 0, True, "free9", "8 of 8 cpu free, 100%", id="empty"),
        pytest.param(8000, 8000, True, "free0", "0 of 8 cpu free, 0%", id="full"),
        pytest.param(8000, 9000, True, "free0", "0 of 8 cpu free, 0%", id="more than full"),
        pytest.param(0, 0, True, "none", "no cpu", id="none of it"),
        pytest.param(8000, 4000, False, "cordoned", "4 of 8 cpu free, 50%, takes no pods", id="cordoned"),
    ],
)
def test_the_shade_of_a_node_shows_its_free_share(offered: int, asked: int, ready: bool, shade: str, text: str) -> None:
    node = {"name": "n", "zone": "", "ready": ready, "allocatable": [offered], "requested": [asked]}
    (group,) = by_free_resource({"resources": ["cpu"], "nodes": [node]}, "cpu").groups
    assert (group.title, group.cells[0].shade, group.cells[0].text) == ("no zone", shade, text)


def test_colours_by_verdict_are_few_and_the_frequent_reasons_have_their_own() -> None:
    refusals = {f"n{at}": {"plugin": "P", "reasons": [f"reason {at % 20 if at > 100 else 0}"]} for at in range(200)}
    explanation = {"pod": "p", "best": ["n200"], "feasible": ["n200", "n201"], "total": {"n200": 9, "n201": 8}}
    drawn = by_verdict(document(202), {**explanation, "nodes": refusals})
    shades = {key.text: key.shade for key in drawn.legend}
    assert shades["fits best"] == "best"
    assert shades["fits"] == "fits"
    assert shades["reason 0"] == "refused0"
    assert len(drawn.legend) == 10
    assert sum(key.nodes for key in drawn.legend) == 202


def test_the_waterfall_leads_from_the_next_to_the_winner() -> None:
    leads = {"A": 9, "B": -3, "C": -2}
    plugins = {name: {"weight": 1, "winner": 0, "runnerUp": 0, "difference": by} for name, by in leads.items()}
    steps = waterfall_steps({"plugins": plugins})
    assert [(step["plugin"], step["x"], step["width"]) for step in steps] == [
        ("A", 0, 100), ("B", 66.67, 33.33), ("C", 44.44, 22.22),
    ]  # fmt: skip


def test_every_file_that_is_no_module_is_package_data() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = setup["options.package_data"]["extender"].split()
    packaged = {path for pattern in patterns for path in (ROOT / "extender").glob(pattern)}
    files = {path for path in (ROOT / "extender").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.suffix != ".py"} - packaged == set()
    assert {path.suffix for path in packaged} >= {".html", ".css", ".js"}
