"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T], timeout_seconds: float = 90) -> T:
    """Returns the probe's first true answer; its last answer when the time is over, for the caller's assertion to show.

    The limit is long because a machine that runs much else may give a process a tenth of a core.
    """
    deadline = time.monotonic() + timeout_seconds
    while not (answer := probe()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer
