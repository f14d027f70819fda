"""Knows under which name the distribution is installed, so that nothing else has to."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files

DISTRIBUTION = "podseat"
_UNKNOWN = "unknown"


def product_version() -> str:
    """Returns the version of the installed distribution."""
    return version(DISTRIBUTION)


def product_commit() -> str:
    """Returns the commit that was built, abbreviated, or "unknown" if it was not built from a git checkout."""
    try:
        node = files("extender").joinpath("runtime/commit.txt").read_text()  # written by setuptools-scm: g1a2b3c4d5
    except FileNotFoundError:
        return _UNKNOWN
    return node.removeprefix("g") if node.startswith("g") else _UNKNOWN
