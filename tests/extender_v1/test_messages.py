"""extender/v1 payloads: keys in any case in, exact case out, null and [] kept apart."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from extender.errors import InvalidAnswer, MalformedRequest
from extender.extender_v1.messages import (
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriorityList,
    MetaPod,
    MetaVictims,
    NamesReader,
    NodeVictims,
    decode_args,
    decode_binding_args,
    decode_preemption_args,
    encode_priorities,
    validate_filter,
    validate_preempt,
    validate_prioritize,
)
from extender.table import PodInfo
from tests.builders import PodBuilder, expression, make_node, make_pod, node_term
from tests.extender_v1.request_memory import SHAPES

POD = make_pod("p").obj()


def recased(value: Any, change: Any) -> Any:
    return {change(key): inner for key, inner in value.items()}


@pytest.mark.parametrize("change", [str, str.lower, str.upper, str.swapcase], ids=["Go", "lower", "upper", "swapped"])
def test_wrapper_keys_are_read_in_any_case(change: Any) -> None:
    body = recased({"Pod": POD, "Nodes": recased({"Items": [make_node("n").obj()]}, change), "NodeNames": None}, change)
    args = decode_args(json.dumps(body).encode())
    assert (args.pod.name, args.names, args.node_names) == ("p", ["n"], None)
    meta = recased({"Pods": [recased({"UID": "u"}, change)], "NumPDBViolations": 1}, change)
    preemption = decode_preemption_args(
        json.dumps(recased({"Pod": POD, "NodeNameToMetaVictims": {"Node-A": meta}}, change)).encode()
    )
    assert preemption.victims["Node-A"].uids == ["u"]
    assert preemption.victims["Node-A"].pdb_violations == 1
    fields = recased({"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"}, change)
    assert decode_binding_args(json.dumps(fields).encode()).pod_uid == "u"


def test_whole_victims_and_their_uids() -> None:
    body = {"Pod": POD, "NodeNameToVictims": {"n": {"Pods": [make_pod("v").obj()], "NumPDBViolations": 0}}}
    victims = decode_preemption_args(json.dumps(body).encode()).victims["n"]
    assert victims.uids == ["pod-default-v"]
    assert victims.pods is not None
    assert victims.pods[0].name == "v"


def test_names_that_come_again_are_the_same_list() -> None:
    reader = NamesReader()
    first, again, others = (
        decode_args(json.dumps({"Pod": POD, "NodeNames": names}).encode(), reader)
        for names in (["a", "b"], ["a", "b"], ["b", "a"])
    )
    assert first.names is again.names
    assert (first.names, others.names) == (["a", "b"], ["b", "a"])


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param([], id="none"),
        pytest.param(["node-1"], id="one"),
        pytest.param(["node-1", "node-2.example", "node-3"], id="plain names"),
        pytest.param(["a", 'quo"te', "back\\slash"], id="marks that JSON escapes"),
        pytest.param(["a", "tab\tand\nline"], id="control characters"),
        pytest.param(["a", "größe", "\u2028"], id="not ASCII"),
    ],
)
def test_priorities_in_the_names_of_go(hosts: list[str]) -> None:
    scores = np.arange(10, 10 - len(hosts), -1)
    expected = [{"Host": host, "Score": score} for host, score in zip(hosts, scores.tolist(), strict=True)]
    assert json.loads(encode_priorities(HostPriorityList(hosts, scores))) == expected


@pytest.mark.parametrize(
    "node",
    [
        pytest.param('{"metadata":{"name":"n"}}', id="name first, as Go writes it"),
        pytest.param('{"status":{},"metadata":{"labels":{},"name":"n"}}', id="name elsewhere"),
        pytest.param('{"metadata":{"name":"\\u006e"}}', id="name escaped"),
        pytest.param(' { "metadata" : { "name" : "n" } }', id="white space"),
    ],
)
def test_the_name_of_a_raw_node(node: str) -> None:
    body = f'{{"Pod":{json.dumps(POD)},"Nodes":{{"items":[{node}]}}}}'.encode()
    assert decode_args(body).names == ["n"]


@pytest.mark.processes
@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_takes_no_more_than_eight_times_its_size(shape: str) -> None:
    command = [sys.executable, "-m", "tests.extender_v1.request_memory", shape]
    printed = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True).stdout
    assert float(printed) <= 8


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "not a JSON object of the expected form", id="nothing"),
        pytest.param(b"[]", "not a JSON object of the expected form", id="a list"),
        pytest.param(b"{", "not a JSON object of the expected form", id="cut off"),
        pytest.param(b'{"Pod":\xff}', "JSON", id="no UTF-8"),
        pytest.param(b'{"NodeNames":[]}', "Pod: expected a pod with a name and a UID", id="no pod"),
        pytest.param(
            json.dumps({"Pod": {"metadata": {"name": "p", "uid": "u" * 300}}, "NodeNames": []}).encode(),
            "longer than 253 characters",
            id="a long UID",
        ),
        pytest.param(b'{"Pod":null,"NodeNames":[]}', "Pod: expected a pod with a name and a UID", id="null pod"),
        pytest.param(json.dumps({"Pod": POD}).encode(), "neither NodeNames nor Nodes", id="no nodes"),
        pytest.param(json.dumps({"Pod": POD, "NodeNames": [1]}).encode(), "NodeNames: Expected `str`", id="numbers"),
        pytest.param(json.dumps({"Pod": POD, "Nodes": {"items": [None]}}).encode(), "Nodes.items", id="null node"),
        pytest.param(json.dumps({"Pod": POD, "Nodes": {"items": [{}]}}).encode(), "without a name", id="nameless node"),
        pytest.param(
            b'{"Pod":%b,"Nodes":{"items":[{"metadata":{"name":"n"},"x":"\xff"}]}}' % json.dumps(POD).encode(),
            "not UTF-8",
            id="an echo that would be no UTF-8",
        ),
        pytest.param(
            b'{"Pod":{"spec":{"containers":[%b{}]}},"NodeNames":[]}' % (b"{}," * 2**20),
            "Pod has .* bytes, too few for about 1048576 values",
            id="a pod of a million containers",
        ),
        pytest.param(
            b'{"Pod":{"metadata":{"name":"%b"}},"NodeNames":[]}' % (b"n" * 2**22),
            "Pod: .* more than an API server stores in one object",
            id="a pod larger than any that is stored",
        ),
        pytest.param(json.dumps({"Pod": {"spec": 3}, "NodeNames": []}).encode(), "Pod: Expected", id="odd pod"),
        pytest.param(
            json.dumps({"Pod": {"spec": {"priority": 2**31}}, "NodeNames": []}).encode(),
            "Pod: Expected `int` <= 2147483647 - at `.*priority`",
            id="a number beyond its type",
        ),
        pytest.param(b'{"Pod":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "JSON|recursion|depth", id="deep nesting"),
    ],
)
def test_malformed_requests_say_where(body: bytes, message: str) -> None:
    with pytest.raises(MalformedRequest, match=message) as caught:
        decode_args(body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("violations", [-1, 2**63, 2**64])
def test_violations_that_go_cannot_count_are_refused(violations: int) -> None:
    victims = {"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": violations}}
    with pytest.raises(MalformedRequest, match=f"victims of n: NumPDBViolations: {violations}"):
        decode_preemption_args(json.dumps({"Pod": POD, "NodeNameToMetaVictims": victims}).encode())


@pytest.fixture(scope="module")
def million() -> bytes:
    """A million fields."""
    return b",".join(b'"%07d":"abcdefgh"' % number for number in range(1_000_002))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"NodeNames":[],%b}', id="fields"),
        pytest.param(b'{"Pod":{},"NodeNameToVictims":{%b}}', id="nodes"),
        pytest.param(b'{"Pod":{},"NodeNameToVictims":{"n":{%b}}}', id="fields of a node's victims"),
        pytest.param(b'{"Pod":{},"NodeNameToVictims":{"n":{"Pods":[{%b}]}}}', id="fields of a victim"),
    ],
)
@pytest.mark.parametrize("decode", [decode_args, decode_preemption_args, decode_binding_args])
def test_a_map_that_would_keep_everybody_waiting_is_refused(body: bytes, decode: Any, million: bytes) -> None:
    with pytest.raises(MalformedRequest, match=r"100000\d values"):
        decode(body % million)


@pytest.mark.parametrize(("key", "uid"), [("NodeNameToMetaVictims", "UID"), ("NodeNameToVictims", "uid")])
def test_others_have_their_turn_at_each_node_of_a_map_of_victims(key: str, uid: str) -> None:
    """While msgspec reads, the interpreter changes threads only where it comes back to Python."""
    body = json.dumps({"Pod": POD, key: {f"n{number}": {"Pods": [{uid: "u"}]} for number in range(100)}}).encode()
    within, turns = [""], 0

    def profile(_frame: FrameType, event: str, function: object) -> None:
        nonlocal turns
        if event == "c_call":
            within.append(getattr(function, "__name__", ""))
        elif event in ("c_return", "c_exception"):
            within.pop()
        elif event == "call" and within[-1] == "decode":
            turns += 1

    sys.setprofile(profile)
    try:
        victims = decode_preemption_args(body).victims
    finally:
        sys.setprofile(None)
    assert len(victims) == 100
    assert turns == 100


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        pytest.param(decode_args, b'{"Pod":%b,"NodeNames":["n"],%b}', id="filter"),
        pytest.param(decode_preemption_args, b'{"Pod":%b,"NodeNameToMetaVictims":{"n":{"Pods":[]}},%b}', id="preempt"),
    ],
)
def test_fields_that_are_not_known_are_passed_over_and_not_kept(decode: Any, body: bytes, million: bytes) -> None:
    """As a map a million of them would hold the interpreter for half a second, and everybody else with it."""
    assert decode(body % (json.dumps(POD).encode(), million)).pod.name == POD["metadata"]["name"]


def test_a_bind_needs_all_four_fields() -> None:
    with pytest.raises(MalformedRequest, match="PodUID, Node missing or empty"):
        decode_binding_args(b'{"PodName":"p","PodNamespace":"d","PodUID":""}')


def test_a_preempt_request_needs_one_of_the_maps() -> None:
    with pytest.raises(MalformedRequest, match="neither NodeNameToVictims"):
        decode_preemption_args(json.dumps({"Pod": POD, "NodeNameToVictims": None}).encode())


@pytest.mark.parametrize(
    ("passed", "failed", "message"),
    [
        pytest.param(["a", "z"], {"b": "x"}, "the request does not name the nodes z", id="a stranger passes"),
        pytest.param(["a"], {"b": "x", "z": "x"}, "the request does not name the nodes z", id="a stranger fails"),
        pytest.param(["a"], {}, "without a reason: b", id="a node dropped in silence"),
        pytest.param(["a", "b"], {"b": "x"}, "names a node twice", id="both"),
    ],
)
def test_filter_answers_that_would_hurt(passed: list[str], failed: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidAnswer, match=message):
        validate_filter(["a", "b"], ExtenderFilterResult(node_names=passed, failed_nodes=failed))


@pytest.mark.parametrize(
    "result",
    [
        pytest.param([], id="a node without a score"),
        pytest.param([("a", 11)], id="too high"),
        pytest.param([("a", -1)], id="too low"),
        pytest.param([("a", 1.5)], id="no integer"),
        pytest.param([("a", True)], id="no integer either"),
        pytest.param([("a", 1), ("z", 1)], id="a stranger"),
        pytest.param([("a", 1), ("a", 1)], id="a node twice"),
    ],
)
def test_prioritize_answers_that_would_hurt(result: list[tuple[str, Any]]) -> None:
    with pytest.raises(InvalidAnswer, match="prioritize"):
        validate_prioritize(
            ["a"], HostPriorityList([host for host, _ in result], np.array([score for _, score in result]))
        )


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param({"z": MetaVictims([MetaPod("u")], 0)}, id="a stranger"),
        pytest.param({"a": MetaVictims([], 0)}, id="no victims"),
        pytest.param({"a": MetaVictims([MetaPod("")], 0)}, id="a victim without UID"),
        pytest.param({"a": MetaVictims([MetaPod("u"), MetaPod("u")], 0)}, id="a victim twice"),
        pytest.param({"a": MetaVictims([MetaPod("u")], -1)}, id="fewer than no violations"),
    ],
)
def test_preempt_answers_that_would_hurt(victims: dict[str, MetaVictims]) -> None:
    with pytest.raises(InvalidAnswer, match="preempt"):
        validate_preempt({"a": NodeVictims(["u"])}, ExtenderPreemptionResult(victims))


def test_a_node_may_be_without_victims_if_the_request_has_none_for_it() -> None:
    asked = {"a": NodeVictims([]), "b": NodeVictims(["u"])}
    validate_preempt(asked, ExtenderPreemptionResult({"a": MetaVictims([], 0), "b": MetaVictims([MetaPod("u")], 0)}))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod("p").req(cpu="1"), id="an ordinary pod"),
        pytest.param(make_pod("p").label(**{f"a{n}": "" for n in range(1000)}), id="labels by the thousand"),
        pytest.param(
            make_pod("p").req({f"example.com/r{n}": "1" for n in range(1000)}), id="resources by the thousand"
        ),
        pytest.param(
            make_pod("p").require_node(node_term(*(expression(f"a{n}", "Exists") for n in range(1000)))),
            id="terms by the thousand",
        ),
    ],
)
def test_a_request_says_how_much_memory_its_pod_takes(pod: PodBuilder) -> None:
    body = json.dumps({"Pod": pod.obj(), "NodeNames": []}, separators=(",", ":")).encode()
    decode_args(body)  # what is made once for all pods
    tracemalloc.start()
    args = decode_args(body)
    info = PodInfo(args.pod)
    info.requests, info.group  # noqa: B018  made as they are asked for, and kept
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 * taken < args.pod_bytes < 8 * taken
