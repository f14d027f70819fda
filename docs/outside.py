"""A hook of mkdocs: links to files outside of docs/ (sources, tests, the chart) become their text.

tests/docs/test_site.py sees to it that those files are there.
"""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)\s]+\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Returns the page without links that lead out of the site."""
    return _OUTSIDE.sub(r"\1", markdown)
