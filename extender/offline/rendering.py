"""Renders answers as HTML: as a page of a server, in one self-contained file, or as a part for a notebook.

A page is made from what an answer's `to_dict` returns, and from the cluster's nodes if it has a map. The module also
computes what pages draw: the map of all nodes, a waterfall chart of two nodes' scores, and a list of pending pods. All
text from the cluster is escaped. `html/templates` has the pages, `html/static` their style and an optional script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from extender.runtime.text import printable, rounded

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent / "html"
_LONG = 20_000


class Links:
    """Gives the addresses of a page's links; an empty address means no link.

    This class gives only empty addresses, for notebooks, which cannot reach other pages. Subclasses give real ones.
    """

    def json(self, pointer: str) -> str:  # noqa: ARG002  no link
        """Returns the link to one value of the page's JSON document, given its JSON pointer (RFC 6901)."""
        return ""

    def pod(self, key: str) -> str:  # noqa: ARG002
        return ""

    def node(self, name: str) -> str:  # noqa: ARG002
        return ""

    def group(self, kind: str, key: str) -> str:  # noqa: ARG002
        return ""


class FileLinks(Links):
    """Gives links to the JSON document at the end of the same self-contained file."""

    def json(self, pointer: str) -> str:
        return f"#{_anchor(pointer.split('/')[1])}"


class SiteLinks(Links):
    """Gives links between the pages of a server. All pages are in one directory.

    Args:
        here: the name of the current page.
        query: the arguments of the current page.
        kept: arguments that every link repeats, such as the step of a recording.
    """

    def __init__(self, here: str, query: Mapping[str, str], kept: Mapping[str, str]) -> None:
        self._here = here
        self._query = query
        self._kept = kept

    def json(self, pointer: str) -> str:
        return self.to(f"{self._here}.json", **{**self._query, "at": pointer})

    def pod(self, key: str) -> str:
        return self.to("pod", pod=key)

    def node(self, name: str) -> str:
        return self.to("node", node=name, pod=self._query.get("pod", ""))

    def group(self, kind: str, key: str) -> str:
        return self.to("group", group=key, kind=kind if kind != "PodGroup" else "")

    def to(self, page: str, **query: object) -> str:
        """Returns the address of a page with these arguments; empty arguments are left out."""
        arguments = {name: value for name, value in {**self._kept, **query}.items() if value not in ("", None)}
        return f"{page}?{urlencode(arguments)}" if arguments else page


def part(template: str, document: Mapping[str, Any], **context: Any) -> str:
    """Returns the content of a page without style and links, as notebooks need it."""
    return _render("part.html", template, Links(), document, context)


def page(template: str, document: Mapping[str, Any], links: SiteLinks, **context: Any) -> bytes:
    """Returns a page of a server as HTML; its style sheet and script are separate files."""
    return _render("site.html", template, links, document, context).encode()


def file(template: str, document: Mapping[str, Any], **context: Any) -> str:
    """Returns the page as HTML in one self-contained file, which also has the whole document as JSON."""
    style, script = asset("page.css").decode(), asset("page.js").decode()
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    embedded = {"style": Markup(style), "script": Markup(script), "policy": policy, "parts": _json_parts(document)}  # noqa: S704  our own files
    return _render("file.html", template, FileLinks(), document, {**embedded, **context})


def asset(name: str) -> bytes:
    """Returns the content of `page.css` or `page.js`."""
    return (_HERE / "static" / name).read_bytes()


def _render(layout: str, template: str, links: Links, document: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    return _templates().get_template(template).render(layout=layout, links=links, document=document, **context)


def _json_parts(document: Mapping[str, Any]) -> list[tuple[str, str, Markup]]:
    """Returns (anchor, key, JSON text) for each key of the document; long texts have no line breaks."""
    parts = []
    for key, value in document.items():
        text = json.dumps(value)
        parts.append((_anchor(key), key, escape(text if len(text) > _LONG else json.dumps(value, indent=1))))
    return parts


def _anchor(key: str) -> str:
    return f"json-{quote(key)}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def pointer_part(text: object) -> str:
    """Escapes a key for use in a JSON pointer."""
    return str(text).replace("~", "~0").replace("/", "~1")


def _finalize(value: object) -> object:
    """Escapes control and bidirectional characters, because names in a cluster may hold any character."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _templates() -> Environment:
    """Returns the Jinja environment. Jinja is imported here, because most answers are never rendered as HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["pointer"] = pointer_part
    environment.globals.update(
        by_cause=by_cause, by_free_resource=by_free_resource, by_verdict=by_verdict, waterfall_steps=waterfall_steps,
        rounded=rounded,
    )  # fmt: skip
    return environment


_CELL, _GAP = 10, 1
_SHADES = 9
_MOST_REASONS, _MOST_ZONES = 7, 12
_FEWEST_COLUMNS, _MOST_COLUMNS = 8, 100
_MOST_NAMED_COLUMNS = 10  # squares of wider maps are too small for names
_LINE_CHARACTERS, _MOST_LINES = 10, 4  # of a name in a square
CORDONED, NONE, BEST, FITS, OTHER = "cordoned", "none", "best", "fits", "other"


class Key(NamedTuple):
    """One entry of a map's legend: the CSS class of a colour, its meaning, and the number of nodes in that colour."""

    shade: str
    text: str
    nodes: int


class Cell(NamedTuple):
    """A node in a map: its name, its CSS class, and a text about it."""

    name: str
    shade: str
    text: str


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """The nodes of a zone as a grid of squares.

    `paths` yields (CSS class, SVG path data) for each colour. `names` yields (x, y, lines) for each square, if squares
    are large enough for the names of their nodes.
    """

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
        for i, cell in enumerate(self.cells):
            x, y = i % self.columns * _CELL, i // self.columns * _CELL
            squares.setdefault(cell.shade, []).append(f"M{x} {y}h{side}v{side}h-{side}z")
        yield from ((shade, "".join(parts)) for shade, parts in squares.items())

    @property
    def names(self) -> Iterator[tuple[float, float, Sequence[str]]]:
        if self.columns > _MOST_NAMED_COLUMNS:
            return
        for i, cell in enumerate(self.cells):
            yield i % self.columns * _CELL + _GAP / 2, i // self.columns * _CELL, _lines(cell.name)


def _lines(name: str) -> Sequence[str]:
    """Breaks a node's name into lines, if possible after a `-` or `.`; leaves out the end of a very long name."""
    lines = [""]
    for part in re.findall(rf"[^-.]{{1,{_LINE_CHARACTERS}}}[-.]?|[-.]", name):
        if len(lines[-1]) + len(part) <= _LINE_CHARACTERS:
            lines[-1] += part
        else:
            lines.append(part)
    lines = [line for line in lines if line]
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], f"{lines[_MOST_LINES - 1][:-1]}…"]


@dataclass(frozen=True, slots=True)
class NodeMap:
    """A map of all nodes, grouped by zone; `title` says what the colours show."""

    title: str
    groups: Sequence[ZoneMap]
    legend: Sequence[Key]

    @property
    def is_named(self) -> bool:
        """True if the squares show the names of the nodes."""
        return any(True for group in self.groups for _ in group.names)

    @property
    def data(self) -> dict[str, Any]:
        """The cells in the form that the script page.js expects: {"columns", "groups": [[[name, text], ...], ...]}."""
        columns = self.groups[0].columns if self.groups else 1
        return {"columns": columns, "groups": [[[c.name, c.text] for c in group.cells] for group in self.groups]}


def by_free_resource(document: Mapping[str, Any], resource: str, moment: str = "") -> NodeMap:
    """Returns a map of the nodes, coloured by the free share of a resource.

    `document` is what `offline.nodes.all_nodes` returns; `moment` is added to the title.
    """
    cells = []
    for node, (allocatable, requested) in zip(document["nodes"], _column(document, resource), strict=True):
        free = max(allocatable - requested, 0)
        if not allocatable:
            shade, text = NONE, f"no {resource}"
        else:
            shade = f"free{round(free / allocatable * _SHADES)}" if node["ready"] else CORDONED
            amounts = f"{rounded(resource, free)} of {rounded(resource, allocatable)}"
            text = f"{amounts} {resource} free, {free / allocatable:.0%}"
        cells.append(Cell(node["name"], shade, text + ("" if node["ready"] else ", takes no pods")))
    shares = {f"free{shade}": _range_text(shade) for shade in range(_SHADES + 1)}
    title = f"free {resource}, {moment}" if moment else f"free {resource}"
    return _map_of(document, cells, title, {**shares, CORDONED: "takes no pods", NONE: f"no {resource}"})


def _range_text(shade: int) -> str:
    return f"{max(shade - 0.5, 0) / _SHADES:.0%} to {min(shade + 0.5, _SHADES) / _SHADES:.0%}"


def by_verdict(document: Mapping[str, Any], explanation: Mapping[str, Any]) -> NodeMap:
    """Returns a map of the nodes, coloured by an explanation's verdict on each.

    `document` is what `offline.nodes.all_nodes` returns; `explanation` is what `Explanation.to_dict` returns.
    """
    best, feasible, totals = set(explanation["best"]), set(explanation["feasible"]), explanation["total"]
    refused = {name: ", ".join(each["reasons"]) or each["plugin"] for name, each in explanation["nodes"].items()}
    common = [reason for reason, _ in Counter(refused.values()).most_common(_MOST_REASONS)]
    shades = {reason: f"refused{i}" for i, reason in enumerate(common)}
    cells = []
    for node in document["nodes"]:
        name = node["name"]
        if name in feasible:
            shade, text = (BEST if name in best else FITS), f"fits, with {totals[name]} points"
        else:
            text = refused.get(name, "not examined")
            shade = shades.get(text, OTHER)
        cells.append(Cell(name, shade, text))
    meanings = {BEST: "fits best", FITS: "fits", **{shade: reason for reason, shade in shades.items()}}
    return _map_of(document, cells, f"verdict for {explanation['pod']}", {**meanings, OTHER: "other reasons"})


def by_cause(pods: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, list[list[tuple[int, Mapping[str, Any]]]]]]:
    """Returns (cause, number of pods, rows) for each cause of the pending pods, in the form of PendingPod.to_dict.

    A row is a list of (position in `pods`, pod): the pods of a workload that differ in nothing but names and ages.
    """
    causes: dict[str, dict[object, list[tuple[int, Mapping[str, Any]]]]] = {}
    for position, pod in enumerate(pods):
        line = (pod["namespace"], pod["workload"] or pod["name"], pod["available"], pod["preempts"], pod["blocker"])
        causes.setdefault(pod["cause"], {}).setdefault(line, []).append((position, pod))
    return [(cause, sum(map(len, rows.values())), list(rows.values())) for cause, rows in causes.items()]


def _map_of(document: Mapping[str, Any], cells: Sequence[Cell], title: str, meanings: Mapping[str, str]) -> NodeMap:
    """Returns a map of these cells; `meanings` maps CSS classes to their meanings in the legend."""
    counts = Counter(cell.shade for cell in cells)
    legend = [Key(shade, text, counts[shade]) for shade, text in meanings.items() if counts[shade]]
    by_zone: dict[str, list[Cell]] = {}
    for node, cell in zip(document["nodes"], cells, strict=True):
        by_zone.setdefault(node["zone"], []).append(cell)
    if len(by_zone) > _MOST_ZONES:
        by_zone = {"all zones": list(cells)}
    widest = max(map(len, by_zone.values()), default=1)
    columns = min(max(math.ceil(math.sqrt(2 * widest)), _FEWEST_COLUMNS), _MOST_COLUMNS)
    zones = [ZoneMap(zone or "no zone", zone_cells, columns) for zone, zone_cells in sorted(by_zone.items())]
    return NodeMap(title, zones, legend)


def waterfall_steps(waterfall: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the bars of the chart that leads from the runner-up's total score to the winner's, one for each plugin.

    A bar has the plugin's values from `waterfall["plugins"]`, and also "plugin" (the name), "x" and "width". The last
    two are in per cent of the chart's width.
    """
    ends = list(accumulate((line["difference"] for line in waterfall["plugins"].values()), initial=0))
    low, high = min(ends), max(ends)
    scale = 100 / max(high - low, 1)
    return [
        {
            **line,
            "plugin": plugin,
            "x": round((min(before, after) - low) * scale, 2),
            "width": round(abs(after - before) * scale, 2),
        }
        for (plugin, line), (before, after) in zip(waterfall["plugins"].items(), pairwise(ends), strict=True)
    ]


def _column(document: Mapping[str, Any], resource: str) -> Sequence[tuple[int, int]]:
    """Returns (allocatable, requested) of the resource for each node of the document; zeros for a missing resource."""
    if resource not in document["resources"]:
        return [(0, 0)] * len(document["nodes"])
    position = document["resources"].index(resource)
    return [(node["allocatable"][position], node["requested"][position]) for node in document["nodes"]]
