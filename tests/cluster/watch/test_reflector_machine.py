"""A reflector beside a model of an API server, with faults at any byte between them.

At every moment the sink has the objects of the server at the version of the reflector. After the faults it has those of
the server now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.cluster.watch.list_watch_state import WITHDRAWN_SECONDS, List, ListWatchFailure, Pause, Watch
from extender.cluster.watch.reflector import Reflector
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.runtime.ports import LONG_AGO
from tests.cluster.recorder import Recorder

KIND = "ReplicaSet"  # of a group that a server may leave out
PAGE = 2
NAMES = st.sampled_from("abcde")


class ModelServer:
    """Objects of one kind with their history; all pages of a list show the moment of the first."""

    def __init__(self) -> None:
        self.served = True
        self.version = 10
        self.objects: dict[str, int] = {}
        self.past: dict[int, dict[str, int]] = {self.version: {}}
        self.compacted = 0
        self._log: list[tuple[int, bytes]] = []

    def put(self, name: str) -> bytes:
        self.version += 1
        event = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = self.version
        return self._happened(event, name)

    def remove(self, name: str) -> bytes:
        self.version += 1
        del self.objects[name]
        return self._happened("DELETED", name)

    def page(self, token: str) -> bytes | None:
        """Returns a page of a list, None if the token has expired."""
        version, _, begin = (token or f"{self.version}/0").partition("/")
        if int(version) < self.compacted:
            return None
        items = sorted(self.past[int(version)].items())
        end = int(begin) + PAGE
        metadata = {"resourceVersion": version, "continue": f"{version}/{end}" if end < len(items) else ""}
        return json.dumps(
            {"metadata": metadata, "items": [_object(*item) for item in items[int(begin) : end]]}
        ).encode()

    def events_since(self, version: int) -> bytes | None:
        """Returns the events after the version, None if it has expired."""
        return None if version < self.compacted else b"".join(line for at, line in self._log if at > version)

    @property
    def last_event(self) -> bytes:
        return self._log[-1][1] if self._log else b""

    def _happened(self, event: str, name: str) -> bytes:
        self.past[self.version] = dict(self.objects)
        self._log.append((self.version, _line(event, _object(name, self.version))))
        return self.last_event


def _object(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}}


def _line(event: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": obj}).encode() + b"\n"


class Fragile(Recorder):
    """A sink that may fail once."""

    fails = False
    has_failed = False

    def held(self) -> dict[str, int]:
        return {obj.name: int(obj.metadata.resource_version) for obj in self.objects.get(KIND, {}).values()}

    def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
        self._fail_once()
        super().replaced(kind, objects, asked_at)
        self.has_failed = False

    def changed(self, kind: str, obj: Object) -> None:
        self._fail_once()
        super().changed(kind, obj)

    def deleted(self, kind: str, obj: Object) -> None:
        self._fail_once()
        self.objects[kind].pop(obj.key, None)

    def _fail_once(self) -> None:
        if self.fails:
            self.fails, self.has_failed = False, True
            raise ArithmeticError


class Network(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server, self.sink = ModelServer(), Fragile()
        self.reflector = Reflector(KINDS[KIND], self.sink, self.sink, Random(1))
        self.asked: List | Watch | None = None
        self.streaming = False
        self.under_way = b""

    # ---- what happens in the cluster

    @rule(name=NAMES)
    def an_object_changes(self, name: str) -> None:
        self._stream(self.server.put(name))

    @precondition(lambda self: self.server.objects)
    @rule(data=st.data())
    def an_object_goes(self, data: st.DataObject) -> None:
        self._stream(self.server.remove(data.draw(st.sampled_from(sorted(self.server.objects)))))

    @rule()
    def the_past_is_forgotten(self) -> None:
        self.server.compacted = self.server.version

    @rule(seconds=st.floats(0, 2 * WITHDRAWN_SECONDS))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(served=st.booleans())
    def the_kind_comes_or_goes(self, served: bool) -> None:
        self.server.served = served
        if not served and self.streaming:
            self._over(self.reflector.ended(self.now) or ListWatchFailure.OTHER)

    # ---- what the reflector asks, and is answered

    @precondition(lambda self: self.asked is None)
    @rule()
    def the_reflector_asks(self) -> None:
        step = self.reflector.step(self.now)
        if isinstance(step, Pause):
            self.now += step.seconds + 1e-6  # rounding may leave a moment over
            step = self.reflector.step(self.now)
        assert not isinstance(step, Pause)
        self.asked = step

    @precondition(lambda self: self.asked is not None and not self.streaming)
    @rule()
    def the_server_answers(self) -> None:
        asked = self.asked
        if not self.server.served:
            self._attempt(lambda: self.reflector.refused(404, 0.0, self.now))
        elif isinstance(asked, List):
            page = self.server.page(asked.continue_token)
            self._attempt(lambda: self.reflector.page(page, self.now) if page else self._expired())
            self.asked = None
        else:
            assert asked is not None
            events = self.server.events_since(int(asked.version))
            if events is None:
                self._over(self._expired())
            else:
                self.reflector.opened()
                self.streaming, self.under_way = True, events

    @precondition(lambda self: self.streaming)
    @rule(size=st.integers(1, 400))
    def some_of_the_stream_comes(self, size: int) -> None:
        piece, self.under_way = self.under_way[:size], self.under_way[size:]
        self._attempt(lambda: self.reflector.receive(piece, self.now))

    @precondition(lambda self: self.streaming)
    @rule()
    def a_bookmark_is_sent(self) -> None:
        self._stream(_line("BOOKMARK", {"metadata": {"resourceVersion": str(self.server.version)}}))

    # ---- what goes wrong

    @precondition(lambda self: self.asked is not None and not self.streaming)
    @rule(status=st.sampled_from([404, 410, 429, 500, 503]))
    def it_is_refused(self, status: int) -> None:
        self._attempt(lambda: self.reflector.refused(status, 0.0, self.now))

    @precondition(lambda self: isinstance(self.asked, List))
    @rule(share=st.floats(0, 0.99))
    def a_page_breaks_off(self, share: float) -> None:
        assert isinstance(self.asked, List)
        page = self.server.page(self.asked.continue_token)
        if page is not None:
            self._over(self.reflector.page(page[: int(share * len(page))], self.now))

    @precondition(lambda self: self.asked is not None)
    @rule()
    def the_connection_breaks(self) -> None:
        self._over(self.reflector.broken(ListWatchFailure.OTHER, self.now))

    @precondition(lambda self: self.streaming)
    @rule()
    def the_stream_ends(self) -> None:
        """The stream is cut at any byte, perhaps within a line."""
        self._over(self.reflector.ended(self.now))

    @precondition(lambda self: self.streaming)
    @rule(
        line=st.sampled_from(
            [b"{]\n", b"\n", b'{"type":"ADDED"}\n', _line("ERROR", {"code": 410}), b'{"type":"NEWS","object":{}}\n']
        )
    )
    def a_bad_line_is_sent(self, line: bytes) -> None:
        self._stream(line)

    @precondition(lambda self: self.streaming)
    @rule(times=st.integers(1, 3))
    def an_event_comes_again(self, times: int) -> None:
        self._stream(self.server.last_event * times)

    @rule()
    def the_sink_is_about_to_fail(self) -> None:
        self.sink.fails = True

    # ---- what must hold

    @invariant()
    def the_sink_holds_what_was_there_at_the_version_where_it_is(self) -> None:
        if self.reflector.state.version:
            assert self.sink.held() == self.server.past[int(self.reflector.state.version)]

    @invariant()
    def nothing_is_held_of_a_kind_that_is_not_served(self) -> None:
        assert self.reflector.state.served or not self.sink.held() or self.sink.has_failed

    def teardown(self) -> None:
        """There are no more faults."""
        self.server.served, self.sink.fails = True, False
        for _ in range(200):
            if self.asked is None:
                self.the_reflector_asks()
            elif not self.streaming:
                self.the_server_answers()
            elif self.under_way:
                self.some_of_the_stream_comes(len(self.under_way))
            else:
                break
        assert self.sink.held() == self.server.objects
        assert self.reflector.state.synced
        assert self.reflector.state.served

    def _stream(self, line: bytes) -> None:
        if self.streaming:
            self.under_way += line

    def _expired(self) -> ListWatchFailure:
        return self.reflector.refused(410, 0.0, self.now)

    def _attempt(self, work: Any) -> None:
        """As in the source, an error of the sink is a failure of the watch."""
        try:
            failure = work()
        except ArithmeticError:
            failure = self.reflector.broken(ListWatchFailure.SINK, self.now)
        if failure is not None:
            self._over(failure)

    def _over(self, _failure: ListWatchFailure | None) -> None:
        self.asked, self.streaming, self.under_way = None, False, b""


TestNetwork = Network.TestCase
TestNetwork.settings = settings(stateful_step_count=60)
