"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 0.1


def wait_until(probe: Callable[[], T], timeout_seconds: float = 90) -> T:
    """Returns the probe's first true answer; its last answer when the time is over, for the caller's assertion to show.

    The limit is long because a machine that runs much else may give a process a tenth of a core.
    """
    began_at = time.monotonic()
    while not (answer := probe()) and time.monotonic() < began_at + timeout_seconds:
        pause(began_at)
    return answer


def pause(began_at: float) -> None:
    """Sleeps for a twentieth of the time waited, 0.02 to 0.1 s.

    Each look takes CPU from the process that is awaited.
    """
    waited_seconds = time.monotonic() - began_at
    time.sleep(min(max(_SHORTEST_SECONDS, waited_seconds / 20), _LONGEST_SECONDS))
