"""Decides which connection is closed when no place is left for a new one.

A stranger on the network needs no credentials to open connections, and kubelet's probes, which must not fail, have none
either: they come from the node's address. So places are shared between client addresses. An address with few
connections never makes way for one with many, and some places are kept for addresses that have next to none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import IntEnum
from typing import Protocol

_FEW = 4  # kubelet sends at most this many probes of one container at once
_MOST_SHARES = 8  # an address may always have an eighth of the places, however many addresses there are


class Phase(IntEnum):
    """The states of a connection, in the order in which connections are closed to make room for new ones."""

    LINGERING = 0  # the request was refused, and the client is given time to read why
    NEW = 1  # no request has arrived yet
    HALF = 2  # the client has sent only part of a request, or does not read the answer
    IDLE = 3  # the last request was answered, and another may arrive
    BUSY = 4  # a request is being handled; such a connection is not closed


class Holder(Protocol):
    """A connection that has a place. See `ClientConnection` for the attributes."""

    client: str
    phase: Phase
    since: float
    finishing: bool

    def finish(self, *, make_way: bool = False) -> None: ...


class Places:
    """Limits connections to `most`.

    One address gets at most three quarters of the places. The last eighth is for addresses with fewer than four
    connections. When places run out, an address gets one of its own places, or one of an address that has more. The
    addresses that have more than an equal share come first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_client = max(1, most - most // 4)
        self._most_for_all = most - most // 8

    def make_room(self, client: str, connections: Collection[Holder]) -> bool:
        """Returns True if a new connection of `client` may be served; may close another connection for that."""
        staying = [each for each in connections if not each.finishing or each.phase is Phase.BUSY]
        counts = Counter(each.client for each in staying)
        of_client = counts[client]
        is_full = len(staying) >= (self._most if of_client < _FEW else self._most_for_all)
        if of_client >= self._most_of_client:
            return make_way([each for each in staying if each.client == client])
        if not is_full:
            return True
        share = self._most // min(len({*counts, client}), _MOST_SHARES)
        yielding = [
            each
            for each in staying
            if each.client == client or counts[each.client] > of_client or each.phase is Phase.LINGERING
        ]
        return make_way(yielding, {address for address, count in counts.items() if count > share})


def make_way(connections: Collection[Holder], above_share: Collection[str] = ()) -> bool:
    """Closes one of the connections. Returns False if all are busy.

    A connection that only lingers is closed first, then one of the addresses in `above_share`.
    """
    waiting = [each for each in connections if each.phase is not Phase.BUSY]
    if waiting:
        min(waiting, key=lambda each: _order(each, above_share)).finish(make_way=True)
    return bool(waiting)


def _order(connection: Holder, above_share: Collection[str]) -> tuple[bool, bool, Phase, float]:
    phase = connection.phase  # read once, because the connection's own thread may change it
    return phase is not Phase.LINGERING, connection.client not in above_share, phase, connection.since
