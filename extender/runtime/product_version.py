"""Knows under which name the distribution is installed, so that nothing else has to."""

from __future__ import annotations

from importlib.metadata import metadata, version
from importlib.resources import files

DISTRIBUTION = "podseat"
_UNKNOWN = "unknown"


def product_version() -> str:
    """Returns the version of the installed distribution."""
    return version(DISTRIBUTION)


def documentation_address() -> str:
    """Returns the address of the documents, or "" if the package was built without one (PROJECT_URL)."""
    named = [text.partition(", ") for text in metadata(DISTRIBUTION).get_all("Project-URL") or ()]
    return next((address for name, _, address in named if name == "Documentation"), "")


def product_commit() -> str:
    """Returns the commit that was built, abbreviated, or "unknown" if it was not built from a git checkout."""
    try:
        node = files("extender").joinpath("runtime/commit.txt").read_text()  # written by setuptools-scm: g1a2b3c4d5
    except FileNotFoundError:
        return _UNKNOWN
    return node.removeprefix("g") if node.startswith("g") else _UNKNOWN
