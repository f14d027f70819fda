"""A reflector turns bytes into objects, however the stream is cut and whatever is in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.watch.list_watch_state import PAGE_SIZE, List, ListWatchFailure, Watch
from extender.cluster.watch.reflector import Reflector
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.runtime.ports import LONG_AGO
from tests.builders import make_claim, make_node, make_request
from tests.cluster.recorder import Recorder


def reflector(kind: str = "Node") -> tuple[Reflector, Recorder]:
    recorder = Recorder()
    return Reflector(KINDS[kind], recorder, recorder, Random(1)), recorder


def page(*names: str, version: int = 7, more: str = "") -> bytes:
    items = [make_node(name).resource_version(version).obj() for name in names]
    return json.dumps({"metadata": {"resourceVersion": str(version), "continue": more}, "items": items}).encode()


def line(event: str, name: str = "n", version: int = 8, **obj: Any) -> bytes:
    body = {**make_node(name).resource_version(version).obj(), **obj}
    return json.dumps({"type": event, "object": body}).encode() + b"\n"


def watching(*names: str) -> tuple[Reflector, Recorder]:
    reflecting, recorder = reflector()
    reflecting.step(0.0)
    reflecting.page(page(*names), 0.0)
    recorder.recorded.clear()
    assert isinstance(reflecting.step(0.0), Watch)
    return reflecting, recorder


def version_of(step: object) -> str:
    assert isinstance(step, Watch)
    return step.version


def test_pages_are_delivered_as_one_list() -> None:
    reflecting, recorder = reflector()
    reflecting.step(0.0)
    reflecting.page(page("a", "b", more="x"), 0.0)
    assert recorder.recorded == []
    reflecting.step(0.0)
    reflecting.page(page("c"), 0.0)
    assert recorder.recorded == ["replaced Node 3"]


def test_a_list_that_starts_over_drops_its_earlier_pages() -> None:
    reflecting, recorder = reflector()
    reflecting.step(0.0)
    reflecting.page(page("a", "b", more="x"), 0.0)
    reflecting.step(0.0)
    reflecting.refused(410, 0.0, 0.0)
    assert isinstance(reflecting.step(100.0), List)
    reflecting.page(page("b"), 100.0)
    assert recorder.keys("Node") == ["b"]


def test_a_list_is_as_old_as_the_request_for_its_first_page() -> None:
    """The list has everything written before that, and nothing that was written while later pages were read."""
    reflecting, recorder = reflector()
    for at, body in ((1.0, page("a", more="x")), (2.0, page("b"))):
        reflecting.step(at)
        reflecting.page(body, at + 0.5)
    assert recorder.asked_at == 1.0


def test_a_list_with_null_items_is_empty() -> None:
    reflecting, recorder = reflector()
    reflecting.step(0.0)
    assert reflecting.page(b'{"metadata":{"resourceVersion":"1"},"items":null}', 0.0) is None
    assert recorder.recorded == ["replaced Node 0"]


def test_a_kind_is_synced_once_the_sink_has_the_list() -> None:
    seen = []

    class Watchful(Recorder):
        def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
            seen.append(reflecting.state.synced)
            super().replaced(kind, objects, asked_at)

    recorder = Watchful()
    reflecting = Reflector(KINDS["Node"], recorder, recorder, Random(1))
    reflecting.step(0.0)
    reflecting.page(page("a"), 0.0)
    assert (seen, reflecting.state.synced) == ([False], True)


def test_a_list_that_the_sink_failed_to_take_is_listed_again() -> None:
    class Failing(Recorder):
        def replaced(self, kind: str, objects: Sequence[Object], asked_at: float = LONG_AGO) -> None:
            self.relists += 1
            if self.relists == 1:
                raise ArithmeticError
            super().replaced(kind, objects, asked_at)

    recorder = Failing()
    reflecting = Reflector(KINDS["Node"], recorder, recorder, Random(1))
    reflecting.step(0.0)
    reflecting.page(page("a", more="x"), 0.0)
    reflecting.step(0.0)
    with pytest.raises(ArithmeticError):
        reflecting.page(page("b"), 0.0)
    reflecting.broken(ListWatchFailure.SINK, 0.0)
    assert not reflecting.state.synced
    assert reflecting.step(100.0) == List("", PAGE_SIZE)
    reflecting.page(page("a", more="x"), 100.0)
    reflecting.page(page("b"), 100.0)
    assert recorder.recorded == ["replaced Node 2"]


STREAM = b"".join(
    [
        line("ADDED", "a", 8),
        line("MODIFIED", "a", 9),
        line("ADDED", "b", 10),
        line("DELETED", "a", 11),
        line("BOOKMARK", "", 20),
    ]
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    reflecting, recorder = watching()
    bounds = [0, *sorted(cuts), len(STREAM)]
    for begin, end in pairwise(bounds):
        assert reflecting.receive(STREAM[begin:end], 1.0) is None
    assert reflecting.ended(400.0) is None
    assert recorder.recorded == ["changed a", "changed a", "changed b", "deleted a"]
    assert version_of(reflecting.step(400.0)) == "20"


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"not json\n", id="no JSON"),
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b'{"type":"ADDED"}\n', id="no object"),
        pytest.param(b'{"type":"GONE","object":{}}\n', id="a type unheard of"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"odd"}}}\n', id="an object without a version"),
        pytest.param(b'{"type":"BOOKMARK","object":{}}\n', id="a bookmark without a version"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":5}}}\n', id="a field of the wrong type"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n', id="no UTF-8"),
        pytest.param(b'{"type":"ADDED","object":' + b"[" * 100_000 + b"}\n", id="nested without end"),
    ],
)
def test_a_malformed_line_breaks_the_watch_and_is_counted(broken: bytes) -> None:
    reflecting, recorder = watching()
    assert reflecting.receive(line("ADDED", "a", 8) + broken + line("ADDED", "b", 9), 1.0) is ListWatchFailure.MALFORMED
    assert recorder.recorded == ["changed a"]
    assert recorder.events["MALFORMED"] == 1
    assert version_of(reflecting.step(100.0)) == "8"


def test_a_line_that_breaks_off_is_malformed() -> None:
    reflecting, recorder = watching()
    reflecting.receive(line("ADDED", "a")[:-9], 1.0)
    assert reflecting.ended(400.0) is ListWatchFailure.MALFORMED
    assert recorder.recorded == []
    assert isinstance(reflecting.step(500.0), Watch)


@pytest.mark.parametrize(
    ("code", "failure", "expected"),
    [
        pytest.param(410, ListWatchFailure.EXPIRED, List, id="410"),
        pytest.param(429, ListWatchFailure.OTHER, Watch, id="429"),
        pytest.param(500, ListWatchFailure.OTHER, Watch, id="500"),
    ],
)
def test_an_error_event_ends_the_watch(code: int, failure: ListWatchFailure, expected: type) -> None:
    reflecting, recorder = watching()
    error = json.dumps({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": code}}).encode()
    assert reflecting.receive(error + b"\n", 1.0) is failure
    assert recorder.events["ERROR"] == 1
    assert isinstance(reflecting.step(100.0), expected)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(page("a")[:-5], id="it breaks off"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no list"),
        pytest.param(b'{"kind":"Status","status":"Success"}', id="a status"),
        pytest.param(b'{"items":[]}', id="a list without a version"),
        pytest.param(b'{"metadata":{"resourceVersion":"7"},"items":' + b"[" * 100_000, id="nested without end"),
    ],
)
def test_an_unreadable_page_is_requested_again(body: bytes) -> None:
    reflecting, recorder = reflector()
    reflecting.step(0.0)
    assert reflecting.page(body, 0.0) is ListWatchFailure.MALFORMED
    assert recorder.recorded == []
    assert isinstance(reflecting.step(100.0), List)


@pytest.mark.parametrize(
    ("kind", "served"),
    [pytest.param("Node", True, id="the core group is always there"), pytest.param("ReplicaSet", False, id="others")],
)
def test_404_means_unserved_except_for_the_core_group(kind: str, served: bool) -> None:
    reflecting, _ = reflector(kind)
    reflecting.step(0.0)
    reflecting.refused(404, 0.0, 0.0)
    assert reflecting.state.served is served


def claim(name: str, levels: int) -> bytes:
    """A ResourceClaim as a tenant may create it: the API server accepts 10 KiB of parameters, nested at will."""
    built = make_claim(name, make_request("device", "gpu"))
    built["metadata"] |= {"uid": name, "resourceVersion": "8"}
    built["spec"]["devices"]["config"] = [{"opaque": {"driver": "gpu.example.com", "parameters": "nested"}}]
    return json.dumps(built).encode().replace(b'"nested"', b'{"a":' * levels + b'"}"' + b"}" * levels)


@pytest.mark.parametrize("levels", [100, 900, 1700])
def test_an_object_that_is_nested_too_deep_is_read_like_any_other(levels: int) -> None:
    reflecting, recorder = reflector("ResourceClaim")
    reflecting.step(0.0)
    body = b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s]}' % (claim("deep", levels), claim("flat", 1))
    assert reflecting.page(body, 0.0) is None
    assert recorder.keys("ResourceClaim") == ["default/deep", "default/flat"]
    assert isinstance(reflecting.step(0.0), Watch)
    event = b'{"type":"MODIFIED","object":%s}\n' % claim("deep", levels)
    assert reflecting.receive(event, 0.0) is None
    assert recorder.recorded[-1] == "changed default/deep"


def test_an_object_that_cannot_be_read_is_left_out_and_the_others_are_read() -> None:
    reflecting, recorder = reflector()
    reflecting.step(0.0)
    body = json.loads(page("a", "b"))
    body["items"][0]["spec"] = {"unschedulable": "yes"}
    assert reflecting.page(json.dumps(body).encode(), 0.0) is None
    assert recorder.keys("Node") == ["b"]
    assert isinstance(reflecting.step(0.0), Watch)
    faulty = line("MODIFIED", "b", 8, spec={"unschedulable": "yes"})
    assert reflecting.receive(faulty + line("ADDED", "c", 9), 0.0) is None
    assert recorder.keys("Node") == ["b", "c"]
    assert recorder.unreadable_keys == ["a", "b"]
    assert reflecting.delivered[make_node("c").obj()["metadata"]["uid"]] == "9"
