"""The geometry of the charts: a map of all nodes as a few SVG paths, and the waterfall of scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from extender.offline.nodes import column
from extender.runtime.text import rounded

_CELL, _GAP = 10, 1
_SHADES = 9
_MOST_REASONS, _MOST_ZONES = 7, 12
_FEWEST_COLUMNS, _MOST_COLUMNS = 10, 100
CORDONED, NONE, BEST, FITS, OTHER = "cordoned", "none", "best", "fits", "other"


class Key(NamedTuple):
    """A colour of a map: the class that style.css paints, its meaning, and how many nodes have it."""

    shade: str
    text: str
    nodes: int


class Cell(NamedTuple):
    """A node of a map: its name, its colour, and what is said of it."""

    name: str
    shade: str
    text: str


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """The nodes of a zone, row by row. `paths`: (class, SVG path data), one for each colour."""

    title: str
    cells: Sequence[Cell]
    columns: int

    @property
    def width(self) -> int:
        return self.columns * _CELL

    @property
    def height(self) -> int:
        return math.ceil(len(self.cells) / self.columns) * _CELL

    @property
    def paths(self) -> Iterator[tuple[str, str]]:
        squares: dict[str, list[str]] = {}
        side = _CELL - _GAP
        for at, cell in enumerate(self.cells):
            x, y = at % self.columns * _CELL, at // self.columns * _CELL
            squares.setdefault(cell.shade, []).append(f"M{x} {y}h{side}v{side}h-{side}z")
        yield from ((shade, "".join(parts)) for shade, parts in squares.items())


@dataclass(frozen=True, slots=True)
class NodeMap:
    """All nodes by zone, coloured. `title` says by what."""

    title: str
    groups: Sequence[ZoneMap]
    legend: Sequence[Key]

    @property
    def data(self) -> dict[str, Any]:
        """The script's view of a cell: {"columns", "groups": [[[name, text], ...], ...]}."""
        columns = self.groups[0].columns if self.groups else 1
        return {"columns": columns, "groups": [[[c.name, c.text] for c in group.cells] for group in self.groups]}


def by_free_resource(document: Mapping[str, Any], resource: str, moment: str = "") -> NodeMap:
    """The map of `offline.nodes.all_nodes`, coloured by what is free of a resource; `moment`: for the title."""
    cells = []
    for node, (offered, asked) in zip(document["nodes"], column(document, resource), strict=True):
        free = max(offered - asked, 0)
        if not offered:
            shade, text = NONE, f"no {resource}"
        else:
            shade = f"free{round(free / offered * _SHADES)}" if node["ready"] else CORDONED
            text = f"{rounded(resource, free)} of {rounded(resource, offered)} {resource} free, {free / offered:.0%}"
        cells.append(Cell(node["name"], shade, text + ("" if node["ready"] else ", cordoned")))
    counts = Counter(cell.shade for cell in cells)
    legend = [Key(f"free{at}", _range_text(at), counts[f"free{at}"]) for at in range(_SHADES + 1)]
    legend += [Key(shade, text, counts[shade]) for shade, text in ((CORDONED, "cordoned"), (NONE, f"no {resource}"))]
    title = f"free {resource}, {moment}" if moment else f"free {resource}"
    return NodeMap(title, _grouped(document, cells), [key for key in legend if key.nodes])


def _range_text(shade: int) -> str:
    return f"{max(shade - 0.5, 0) / _SHADES:.0%} to {min(shade + 0.5, _SHADES) / _SHADES:.0%}"


def by_verdict(document: Mapping[str, Any], explanation: Mapping[str, Any]) -> NodeMap:
    """The map of `offline.nodes.all_nodes`, coloured by what an explanation (`to_dict`) says of each node."""
    best, feasible, totals = set(explanation["best"]), set(explanation["feasible"]), explanation["total"]
    refused = {name: ", ".join(each["reasons"]) or each["plugin"] for name, each in explanation["nodes"].items()}
    common = [reason for reason, _ in Counter(refused.values()).most_common(_MOST_REASONS)]
    shades = {reason: f"refused{at}" for at, reason in enumerate(common)}
    cells = []
    for node in document["nodes"]:
        name = node["name"]
        if name in feasible:
            shade, text = (BEST if name in best else FITS), f"fits, with {totals[name]} points"
        else:
            text = refused.get(name, "not asked")
            shade = shades.get(text, OTHER)
        cells.append(Cell(name, shade, text))
    counts = Counter(cell.shade for cell in cells)
    meanings = {BEST: "fits best", FITS: "fits", **{shade: reason for reason, shade in shades.items()}}
    meanings[OTHER] = "other reasons"
    legend = [Key(shade, text, counts[shade]) for shade, text in meanings.items() if counts[shade]]
    return NodeMap(f"verdict for {explanation['pod']}", _grouped(document, cells), legend)


def _grouped(document: Mapping[str, Any], cells: Sequence[Cell]) -> list[ZoneMap]:
    by_zone: dict[str, list[Cell]] = {}
    for node, cell in zip(document["nodes"], cells, strict=True):
        by_zone.setdefault(node["zone"], []).append(cell)
    if len(by_zone) > _MOST_ZONES:
        by_zone = {"all zones": list(cells)}
    widest = max(map(len, by_zone.values()), default=1)
    columns = min(max(math.ceil(math.sqrt(2 * widest)), _FEWEST_COLUMNS), _MOST_COLUMNS)
    return [ZoneMap(zone or "no zone", those, columns) for zone, those in sorted(by_zone.items())]


def waterfall_steps(waterfall: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The way from the runner-up's total to the winner's, plugin by plugin, the greatest difference first.

    Each as `waterfall` has it, with "plugin", "x" and "width"; the last two are per cent of the chart's width.
    """
    at, ends = 0, [0]
    for each in waterfall["plugins"].values():
        at += each["difference"]
        ends.append(at)
    low, high = min(ends), max(ends)
    scale = 100 / max(high - low, 1)
    return [
        {
            **each,
            "plugin": plugin,
            "x": round((min(before, after) - low) * scale, 2),
            "width": round(abs(after - before) * scale, 2),
        }
        for (plugin, each), before, after in zip(waterfall["plugins"].items(), ends[:-1], ends[1:], strict=True)
    ]
