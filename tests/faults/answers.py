"""A strict reading of what an extender may answer; written from the contract, with nothing of the extender's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_TEXT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_MOST_SCORE = 10
_FEW = 50  # so many names are found in a request sooner than all of its texts
_DELIBERATE_STATUSES = {400, 413, 415, 503}


def faults_of(verb: str, request: bytes, status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
    """Returns what is wrong with an answer; where the status is not 200, the scheduler looks no further."""
    if int(headers.get("content-length", "-1")) != len(body):
        return ["no Content-Length, or not the body's"]
    if b"internal error" in body:
        return [f"a defect: {body[:200]!r}"]
    own, found = _without_echoes(request, body)
    try:
        answer = json.loads(own.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return [*found, f"no JSON: {error}"]
    if status != 200:
        return found + _refusal_faults(status, answer, body)
    return found + _FAULTS[verb](answer, request)


def _texts_in(request: bytes) -> frozenset[str]:
    """Every text in a request, so every node that can have been asked about."""
    found = set()
    for text in set(_TEXT.findall(request)):
        try:
            found.add(json.loads(b'"' + text + b'"', strict=False))
        except ValueError:  # what cannot be read as text cannot be a node's name either
            continue
    return frozenset(found)


def _without_echoes(request: bytes, body: bytes) -> tuple[bytes, list[str]]:
    """The body with nothing but their names left of whole nodes, which must have come as they are returned."""
    try:
        nodes = msgspec.json.decode(body, type=_WithNodes).Nodes
    except msgspec.MsgspecError:
        return body, []
    found: list[str] = []
    for raw in nodes.items if nodes else ():
        node = bytes(raw)
        try:
            name = msgspec.json.decode(node, type=_Named).metadata["name"]
        except (msgspec.MsgspecError, KeyError):
            found.append("filter: a node without a name")
            continue
        if node not in request:
            found.append(f"filter: node {name!r} is not as it came")
        body = body.replace(node, msgspec.json.encode({"metadata": {"name": name}}), 1)
    return body, found


class _Named(msgspec.Struct):
    metadata: dict[str, Any]


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw]


class _WithNodes(msgspec.Struct):
    Nodes: _NodeList | None = None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _refusal_faults(status: int, answer: Any, body: bytes) -> list[str]:
    found = [] if status in _DELIBERATE_STATUSES else [f"status {status}"]
    if not (isinstance(answer, dict) and list(answer) == ["error"] and isinstance(answer["error"], str)):
        return [*found, "a refusal is {error: text}"]
    if not answer["error"] or body.count(b"\n") > 1 or len(answer["error"]) > 4096:
        found.append("a refusal is one line that says why")
    return found


def _filter_faults(answer: Any, request: bytes) -> list[str]:
    keys = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    if not isinstance(answer, dict) or set(answer) != keys:
        return ["filter: not the keys of ExtenderFilterResult"]
    if not isinstance(answer["Error"], str):
        return ["filter: Error is no text"]
    passed, found = _passed(answer)
    refused: list[str] = []
    for field in ("FailedNodes", "FailedAndUnresolvableNodes"):
        reasons = answer[field]
        if not isinstance(reasons, dict) or not all(isinstance(why, str) and why for why in reasons.values()):
            found.append(f"filter: {field} is no map of reasons")
        else:
            refused += reasons
    if set(passed) & set(refused) or len(set(refused)) != len(refused):
        found.append("filter: a node twice")
    return found + _strangers([*passed, *refused], request)


def _passed(answer: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The names of the nodes that passed, and what is wrong with how they are listed."""
    names, nodes = answer["NodeNames"], answer["Nodes"]
    if answer["Error"]:
        return [], []
    if (names is None) == (nodes is None):
        return [], ["filter: neither or both of NodeNames and Nodes"]
    if names is not None:
        fine = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return (names, []) if fine else ([], ["filter: NodeNames is no list of names"])
    try:
        return [node["metadata"]["name"] for node in nodes["items"]], []
    except (TypeError, KeyError):
        return [], ["filter: Nodes.items is no list of nodes"]


def _prioritize_faults(answer: Any, request: bytes) -> list[str]:
    if not isinstance(answer, list):
        return ["prioritize: no list"]
    for entry in answer:
        if not isinstance(entry, dict) or set(entry) != {"Host", "Score"} or not isinstance(entry["Host"], str):
            return ["prioritize: not the keys of HostPriority"]
        if type(entry["Score"]) is not int or not 0 <= entry["Score"] <= _MOST_SCORE:
            return [f"prioritize: score {entry['Score']!r}"]
    hosts = [entry["Host"] for entry in answer]
    return _strangers(hosts, request) + (["prioritize: a node twice"] if len(set(hosts)) != len(hosts) else [])


def _preempt_faults(answer: Any, request: bytes) -> list[str]:
    if not isinstance(answer, dict) or set(answer) != {"NodeNameToMetaVictims"}:
        return ["preempt: not the keys of ExtenderPreemptionResult"]
    victims = answer["NodeNameToMetaVictims"]
    if not isinstance(victims, dict):
        return ["preempt: no map of victims"]
    for node, chosen in victims.items():
        if not isinstance(chosen, dict) or set(chosen) != {"Pods", "NumPDBViolations"}:
            return [f"preempt: the victims on {node!r} crash the scheduler"]
        if type(chosen["NumPDBViolations"]) is not int or not 0 <= chosen["NumPDBViolations"] < 2**63:
            return ["preempt: NumPDBViolations"]
        pods = chosen["Pods"]
        if not isinstance(pods, list) or not pods:
            return ["preempt: no victims"]
        if not all(isinstance(pod, dict) and set(pod) == {"UID"} and _is_uid(pod["UID"]) for pod in pods):
            return ["preempt: a victim crashes the scheduler"]
        if len({pod["UID"] for pod in pods}) != len(pods):
            return ["preempt: a victim twice"]
    return _strangers(list(victims), request)


def _is_uid(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _bind_faults(answer: Any, request: bytes) -> list[str]:
    fine = isinstance(answer, dict) and set(answer) == {"Error"} and isinstance(answer["Error"], str)
    return [] if fine else ["bind: not {Error: text}"]


def _strangers(names: list[str], request: bytes) -> list[str]:
    if len(names) < _FEW and all(b'"%b"' % name.encode(errors="replace") in request for name in names):
        return []
    strangers = set(names) - _texts_in(request)
    return [f"nodes that were not asked about: {sorted(strangers)[:3]}"] if strangers else []


_FAULTS: Mapping[str, Callable[[Any, bytes], list[str]]] = {
    "filter": _filter_faults,
    "prioritize": _prioritize_faults,
    "preempt": _preempt_faults,
    "bind": _bind_faults,
}
