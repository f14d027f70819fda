"""Undoes what the tests of this room start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web import fakes


@pytest.fixture(autouse=True)
def stopped_applications() -> Iterator[None]:
    yield
    while fakes.made:
        fakes.made.pop().lifecycle.stop()
