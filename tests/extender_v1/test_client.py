"""Requests to other extenders read as requests to our own, and their answers are read as Go reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.errors import MalformedAnswer
from extender.extender_v1 import messages
from extender.extender_v1.client import (
    Filtered,
    Offer,
    decode_binding_result,
    decode_filtered,
    decode_preemption_result,
    decode_priorities,
    encode_args,
    encode_binding_args,
    encode_preemption_args,
)
from extender.extender_v1.messages import HostPriority
from extender.runtime.ports import Binding
from tests.builders import make_node, make_pod

POD = json.dumps(make_pod("p").obj()).encode()


def test_names() -> None:
    body = encode_args(POD, ["a", "b"])
    assert json.loads(body) == {"Pod": json.loads(POD), "Nodes": None, "NodeNames": ["a", "b"]}
    assert messages.decode_args(body).node_names == ["a", "b"]


def test_whole_nodes() -> None:
    nodes = [json.dumps(make_node(name).obj()).encode() for name in ("a", "b")]
    body = encode_args(POD, None, nodes)
    assert json.loads(body)["Nodes"] == {"metadata": {}, "items": [json.loads(node) for node in nodes]}
    args = messages.decode_args(body)
    assert (args.node_names, args.names) == (None, ["a", "b"])


@pytest.mark.parametrize("names", [pytest.param(True, id="by UID"), pytest.param(False, id="whole")])
def test_victims(names: bool) -> None:
    victim = make_pod("v").obj()
    offers = {"a": Offer([victim["metadata"]["uid"]], 1, [json.dumps(victim).encode()])}
    body = encode_preemption_args(POD, offers, names=names)
    filled, empty = "NodeNameToMetaVictims", "NodeNameToVictims"
    filled, empty = (filled, empty) if names else (empty, filled)
    pods = [{"UID": victim["metadata"]["uid"]}] if names else [victim]
    assert json.loads(body) == {
        "Pod": json.loads(POD),
        filled: {"a": {"Pods": pods, "NumPDBViolations": 1}},
        empty: None,
    }
    read = messages.decode_preemption_args(body).victims["a"]
    assert (read.uids, read.pdb_violations) == (offers["a"].uids, 1)


def test_a_binding() -> None:
    args = messages.decode_binding_args(encode_binding_args(Binding("shop", "p", "uid-1", "n")))
    assert (args.pod_namespace, args.pod_name, args.pod_uid, args.node) == ("shop", "p", "uid-1", "n")


NOTHING = Filtered([], {}, {}, "")


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        pytest.param({"NodeNames": ["a"]}, Filtered(["a"], {}, {}, ""), id="names"),
        pytest.param({"nodenames": ["a"], "error": "no"}, Filtered(["a"], {}, {}, "no"), id="other letters"),
        pytest.param(
            {"Nodes": {"items": [{"metadata": {"name": "a"}, "spec": {}}]}}, Filtered(["a"], {}, {}, ""), id="nodes"
        ),
        pytest.param(
            {"NodeNames": [], "FailedNodes": {"a": "x"}, "FailedAndUnresolvableNodes": {"b": "y"}},
            Filtered([], {"a": "x"}, {"b": "y"}, ""),
            id="failed",
        ),
        pytest.param({"NodeNames": None, "FailedNodes": None, "Nodes": None}, NOTHING, id="nulls"),
        pytest.param(None, NOTHING, id="null"),
        pytest.param({}, NOTHING, id="empty"),
        pytest.param({"Extra": 1, "Nodes": {"items": None}}, NOTHING, id="unknown field"),
    ],
)
def test_filter_answers(answer: Any, read: Filtered) -> None:
    assert decode_filtered(json.dumps(answer).encode(), names=True) == read


def test_names_count_only_where_names_were_sent() -> None:
    answer = {"NodeNames": ["a"], "Nodes": {"items": [{"metadata": {"name": "b"}}]}}
    assert decode_filtered(json.dumps(answer).encode(), names=False).passed == ["b"]
    assert decode_filtered(json.dumps(answer).encode(), names=True).passed == ["a"]


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        pytest.param([{"Host": "a", "Score": 3}], [HostPriority("a", 3)], id="exact"),
        pytest.param([{"host": "a", "score": -3}], [HostPriority("a", -3)], id="lower case"),
        pytest.param([{"Host": "a"}], [HostPriority("a", 0)], id="no score"),
        pytest.param([], [], id="empty"),
        pytest.param(None, [], id="null"),
    ],
)
def test_priorities(answer: Any, read: list[HostPriority]) -> None:
    assert decode_priorities(json.dumps(answer).encode()) == read


def test_victims_that_come_back() -> None:
    answer = {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}, "b": {"pods": None}}}
    assert decode_preemption_result(json.dumps(answer).encode()) == {"a": Offer(["u"], 2), "b": Offer([], 0)}
    assert decode_preemption_result(b"{}") == {}


@pytest.mark.parametrize(("body", "error"), [(b"{}", ""), (b'{"Error":"taken"}', "taken"), (b'{"error":null}', "")])
def test_bind_answers(body: bytes, error: str) -> None:
    assert decode_binding_result(body) == error


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        pytest.param("filter", b"", id="nothing"),
        pytest.param("filter", b"[]", id="a list"),
        pytest.param("filter", b'{"NodeNames":"a"}', id="text for names"),
        pytest.param("filter", b'{"NodeNames":[null]}', id="a null name"),
        pytest.param("filter", b'{"FailedNodes":{"a":1}}', id="number for reason"),
        pytest.param("filter", b'{"NodeNames":["\xff"]}', id="no text"),
        pytest.param("filter", b"[" * 100_000, id="deep"),
        pytest.param("prioritize", b'[{"Host":"a","Score":1.5}]', id="fraction"),
        pytest.param("prioritize", b'[{"Host":"a","Score":9223372036854775808}]', id="beyond 64 bits"),
        pytest.param("prioritize", b'{"Host":"a"}', id="no list of scores"),
        pytest.param("preempt", b'{"NodeNameToMetaVictims":{"a":null}}', id="null victims"),
        pytest.param("preempt", b'{"NodeNameToMetaVictims":{"a":{"Pods":[null]}}}', id="null victim"),
        pytest.param("preempt", b'{"NodeNameToMetaVictims":{"a":{"NumPDBViolations":1e30}}}', id="many violations"),
        pytest.param("bind", b'{"Error":1}', id="number for cause"),
    ],
)
def test_answers_that_make_no_sense(decode: str, body: bytes) -> None:
    decoders: dict[str, Callable[[], object]] = {
        "filter": lambda: decode_filtered(body, names=True),
        "prioritize": lambda: decode_priorities(body),
        "preempt": lambda: decode_preemption_result(body),
        "bind": lambda: decode_binding_result(body),
    }
    with pytest.raises(MalformedAnswer):
        decoders[decode]()


def test_5000_scores_in_lower_case() -> None:
    answer = [{"host": f"n{index}", "score": index % 11} for index in range(5000)]
    read = decode_priorities(msgspec.json.encode(answer))
    assert read[4999] == HostPriority("n4999", 4999 % 11)
