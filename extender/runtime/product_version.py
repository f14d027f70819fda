"""Knows the name of the installed distribution, so that no other module has to."""

from __future__ import annotations

from importlib.metadata import metadata, version
from importlib.resources import files

DISTRIBUTION = "podseat"
_UNKNOWN = "unknown"


def product_version() -> str:
    """Returns the version of the installed distribution."""
    return version(DISTRIBUTION)


def documentation_address() -> str:
    """Returns the address of the documentation; "" if the package was built without one (PROJECT_URL)."""
    named = [text.partition(", ") for text in metadata(DISTRIBUTION).get_all("Project-URL") or ()]
    return next((address for name, _, address in named if name == "Documentation"), "")


def product_commit() -> str:
    """Returns the commit that was built, abbreviated; "unknown" if it was not built from a git checkout."""
    try:
        node = files("extender").joinpath("runtime/commit.txt").read_text()  # setuptools-scm writes g1a2b3c4d5
    except FileNotFoundError:
        return _UNKNOWN
    return node.removeprefix("g") if node.startswith("g") else _UNKNOWN
