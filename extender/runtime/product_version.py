"""Knows under which name the distribution is installed, so that nothing else has to."""

from __future__ import annotations

from importlib.metadata import version

DISTRIBUTION = "podseat"


def product_version() -> str:
    """Returns the version of the installed distribution."""
    return version(DISTRIBUTION)
