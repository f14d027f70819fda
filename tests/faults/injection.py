"""Faults on the way to the API server, drawn from a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random


class Call(Enum):
    """The kinds of calls to the API server."""

    LIST = "list"
    WATCH = "watch"
    BIND = "bind"


class Fault(Enum):
    RESET = "reset"
    """The connection is reset; the API server has seen nothing, or sends into the void from now on."""
    GONE = "gone"
    """410, as a status or, in the midst of a watch, as an ERROR event."""
    THROTTLED = "throttled"
    """429 with Retry-After."""
    FAILED = "failed"
    """500, and nothing done."""
    HUNG = "hung"
    """Telemetry, then a reset; the API server has seen nothing, or nothing more of a watch goes through."""
    SLOW = "slow"
    """The answer comes in drops."""
    TRUNCATED = "truncated"
    """The answer breaks off."""
    GARBLED = "garbled"
    """A line of a watch is no JSON."""
    UNANSWERED = "unanswered"
    """Done by the API server, then a reset instead of the answer."""
    LEFT_HANGING = "left hanging"
    """Done by the API server, then silence, then a reset."""
    DONE_YET_FAILED = "done yet failed"
    """Done by the API server, and 500 for an answer."""
    ENDLESS = "endless"
    """Done by the API server, then interim answers without end."""
    UNMEASURED = "unmeasured"
    """The answer gives no length, and ends with its connection."""
    UNREADABLE = "unreadable"
    """Done by the API server, and a refusal for an answer that is no UTF-8."""
    SURPLUS = "surplus"
    """After the answer comes another without a request."""
    DELAYED = "delayed"
    """The API server sees the request after a silence, whatever has become of the client by then."""


FAULTS: Mapping[Call, tuple[Fault, ...]] = {
    Call.LIST: (
        Fault.RESET,
        Fault.GONE,
        Fault.THROTTLED,
        Fault.FAILED,
        Fault.HUNG,
        Fault.SLOW,
        Fault.TRUNCATED,
    ),
    Call.WATCH: (
        Fault.RESET,
        Fault.GONE,
        Fault.THROTTLED,
        Fault.FAILED,
        Fault.HUNG,
        Fault.SLOW,
        Fault.TRUNCATED,
        Fault.GARBLED,
    ),
    Call.BIND: (
        Fault.RESET,
        Fault.THROTTLED,
        Fault.FAILED,
        Fault.HUNG,
        Fault.SLOW,
        Fault.TRUNCATED,
        Fault.UNANSWERED,
        Fault.LEFT_HANGING,
        Fault.DONE_YET_FAILED,
        Fault.ENDLESS,
        Fault.UNMEASURED,
        Fault.UNREADABLE,
        Fault.SURPLUS,
    ),
}


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault for one call.

    Attributes:
        after_seconds: how long a watch streams before it strikes; 0: instead of an answer.
        hang_seconds: how long a silence lasts.
        share: of the answer's bytes, how much still goes through.
    """

    fault: Fault
    after_seconds: float
    hang_seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Severity:
    """The chance of a fault for each kind of call, and how long silences and healthy watches last.

    A request that arrives late may overfill a node, which no process can prevent, so it is in no storm.
    """

    chances: Mapping[Call, float]
    hang_seconds: tuple[float, float]
    watch_seconds: tuple[float, float] = (1.0, 1.0)
    faults: Mapping[Call, tuple[Fault, ...]] = field(default_factory=lambda: FAULTS)


class Injector:
    """The n-th call of a kind meets the same fault in every run of a seed; which pod's it is depends on the threads."""

    def __init__(self, seed: int, severity: Severity) -> None:
        self.injected: Counter[tuple[Call, Fault]] = Counter()
        self._severity = severity
        self._randoms = {call: Random(f"{seed} {call.value}") for call in Call}
        self._calm = False

    def calm(self) -> None:
        """No faults from now on."""
        self._calm = True

    def draw(self, call: Call) -> Injection | None:
        """The fault that the next call of this kind meets, if any."""
        random, severity = self._randoms[call], self._severity
        strikes = random.random() < severity.chances.get(call, 0)
        injection = Injection(
            random.choice(severity.faults[call]),
            random.choice((0.0, random.uniform(*severity.watch_seconds))) if call is Call.WATCH else 0.0,
            random.uniform(*severity.hang_seconds),
            random.uniform(0.05, 0.95),
        )
        return injection if strikes and not self._calm else None
