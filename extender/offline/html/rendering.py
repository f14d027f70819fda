"""Renders the templates as pages of a server, as files, or as parts for notebooks."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from extender.offline.html.charts import by_cause, by_free_resource, by_verdict, waterfall_steps
from extender.runtime.text import printable, rounded

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
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
