"""Defines, reads and writes the requests and answers of the protocol (k8s.io/kube-scheduler/extender/v1).

A missing list is None and an empty list is [], because kube-scheduler distinguishes them. Keys of a request may be in
any case, because older schedulers write them in lower case. Pods are decoded at once. Nodes stay raw bytes until a rule
reads them, and are sent back unchanged.

Answers are checked against their requests, because a wrong one causes errors in kube-scheduler:

- If the answer names a node that is not in the request, the whole call fails.
- If a node is missing without a reason, preemption ignores it, and `kubectl describe` shows no reason for it.
- A score out of range is used as it is.
- Null or empty victims make preemption fail, or crash the scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.errors import InvalidAnswer, MalformedRequest
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import INT64_MAX

T = TypeVar("T")
RawObject = dict[str, msgspec.Raw]
NULL = msgspec.Raw(b"null")
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_STORED = (Pod, Node)
# The API server accepts requests of up to 3 MiB. Decoded, empty structures take a hundred times as much memory.
_LARGEST_OBJECT_BYTES = 3 * 1024 * 1024
# Decoding a map of this size takes a second, and msgspec holds the GIL all that time.
_MOST_VALUES = 1_000_000
_FORMS: tuple[Any, ...] = (Pod, Node, str, int, list[str], list[msgspec.Raw], RawObject)
# These decoders are built at import, because msgspec crashes if two threads use a new type.
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {form: msgspec.json.Decoder(form) for form in _FORMS}


def decode_as(raw: msgspec.Raw, form: type[T], where: str) -> T:
    """Decodes the JSON as `form`.

    Raises:
        MalformedRequest: the JSON is faulty or too large. The message begins with `where`, such as "NodeNames".
    """
    if form in _STORED and (size := len(memoryview(raw))) > _LARGEST_OBJECT_BYTES:
        raise MalformedRequest(f"{where}: {size} bytes, more than an API server stores in one object")
    if form is RawObject:
        check_values(bytes(raw), where)
    try:
        value: T = _DECODERS[form].decode(raw)
    except UNDECODABLE as error:
        raise MalformedRequest(f"{where}: {error}") from None
    return value


def check_values(data: bytes, where: str) -> None:
    """Raises MalformedRequest if the JSON has so many values that decoding it would delay all other calls."""
    if (commas := data.count(b",")) > _MOST_VALUES:
        raise MalformedRequest(f"{where} holds {commas} values, more than {_MOST_VALUES}")


def optional_as(raw: msgspec.Raw | None, form: type[T], where: str) -> T | None:
    """Returns None for a field that is missing or null, else what `decode_as` returns."""
    if raw is None or raw == NULL:
        return None
    return decode_as(raw, form, where)


def lower_keys(fields: Mapping[str, msgspec.Raw]) -> RawObject:
    """Returns the fields with lower-case keys, because old schedulers write them in lower case."""
    return {key.lower(): value for key, value in fields.items()}


# Go writes a node's name first. If the name is elsewhere, the whole node is decoded to find it.
_NAME_FIRST = re.compile(rb'\s*\{"metadata":\{"name":"([^"\\]{1,253})"')


class NodeBytes:
    """One Node of a request as raw JSON, which is decoded when a rule first reads the node."""

    __slots__ = ("__dict__", "name", "raw")

    def __init__(self, raw: msgspec.Raw) -> None:
        self.raw = raw
        named = _NAME_FIRST.match(raw)
        self.name = named[1].decode() if named else self.node.name
        if not self.name:
            raise MalformedRequest("Nodes.items[]: a node without a name")

    @cached_property
    def node(self) -> Node:
        return decode_as(self.raw, Node, "Nodes.items[]")


class NodeList(msgspec.Struct, frozen=True):
    """A v1.NodeList whose nodes are raw JSON; Go requires the metadata to be present."""

    metadata: dict[str, str]
    items: list[msgspec.Raw]


class ExtenderArgs(msgspec.Struct, frozen=True):
    """A filter or prioritize request: one pod, and either node names or whole nodes.

    Attributes:
        pod_bytes: an upper estimate of the memory that the pod takes.
    """

    pod: Pod
    node_names: list[str] | None
    nodes: list[NodeBytes] | None
    pod_bytes: int = 0

    @property
    def names(self) -> list[str]:
        """Returns the names of the requested nodes, from either form of the request."""
        if self.node_names is not None:
            return self.node_names
        return [node.name for node in self.nodes or ()]


class NodeVictims(msgspec.Struct, frozen=True):
    """The pods to evict from one node: UIDs, most important first, and whole pods if the request has them."""

    uids: list[str]
    pods: list[Pod] | None = None
    pdb_violations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True):
    """A preempt request: the pod to make room for, and the scheduler's proposed victims by node name."""

    pod: Pod
    victims: Mapping[str, NodeVictims]


class ExtenderBindingArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class ExtenderFilterResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to filter: the nodes that passed, as names or whole nodes, and the reason for each other node.

    Attributes:
        best: the only passing node that the encoded answer names; "" if it names all passing nodes.
    """

    nodes: list[NodeBytes] | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""
    best: str = ""

    @property
    def passed(self) -> list[str]:
        if self.node_names is not None:
            return self.node_names
        return [node.name for node in self.nodes or ()]


class HostPriority(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The score of one node: an integer of 0..10."""

    host: str
    score: int


class HostPriorityList(msgspec.Struct, frozen=True):
    """The answer to prioritize: `scores[i]` (int64, 0..10) belongs to `hosts[i]`."""

    hosts: list[str]
    scores: NDArray[np.int64]


class MetaPod(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    """The UIDs of the victims on one node, most important first."""

    pods: list[MetaPod] = msgspec.field(name="Pods")
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations")


class ExtenderPreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer to preempt: the accepted nodes with their victims; empty if preemption does not help."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class ExtenderBindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer to bind: `error` is the cause of a failed bind, or empty if the pod is bound."""

    error: str = ""


_LARGEST_KEPT_BYTES = 1024 * 1024
# The largest clusters stay below these limits. Decoded, even a JSON value of one character takes 60 bytes.
_MOST_NODES = 200_000
_MOST_VICTIMS = 500_000
_MOST_SHORT_VALUES = 200_000
# A scheduler's request has 26 to 36 bytes for each comma, or about 13 if it includes managedFields.
_FEWEST_BYTES_A_NODE_VALUE = 12
_FEWEST_BYTES_A_VALUE = 16
_LONGEST_NAME = 253  # the API server's limit; recent pods are remembered, so longer names would waste memory
_OBJECT = msgspec.json.Decoder(RawObject)
_ENCODER = msgspec.json.Encoder()


class _ArgsFields(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw = NULL
    nodes: msgspec.Raw = NULL
    node_names: msgspec.Raw = NULL


class _PreemptionFields(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw = NULL
    node_name_to_victims: msgspec.Raw = NULL
    node_name_to_meta_victims: msgspec.Raw = NULL


class _VictimsFields(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    pods: msgspec.Raw = NULL
    num_pdb_violations: int | None = msgspec.field(default=None, name="NumPDBViolations")

    def __post_init__(self) -> None:
        """Does nothing, but calling it for each node lets other threads run while msgspec decodes a long map."""


class _VictimsByNode(Mapping[str, NodeVictims]):
    """The victims by node name, decoded on access, so that victims on unknown nodes cost no memory."""

    def __init__(self, fields: Mapping[str, _VictimsFields]) -> None:
        self._fields = fields

    def __getitem__(self, node: str) -> NodeVictims:
        return _victims(self._fields[node], node)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class _NodeList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


_Fields = TypeVar("_Fields", bound="_ArgsFields | _PreemptionFields")
_ARGS = msgspec.json.Decoder(_ArgsFields)
_PREEMPTION = msgspec.json.Decoder(_PreemptionFields)
_NODE_LIST = msgspec.json.Decoder(_NodeList)
_VICTIMS = msgspec.json.Decoder(dict[str, _VictimsFields] | None)
_BINDING = msgspec.json.Decoder(ExtenderBindingArgs)


class NamesReader:
    """Decodes the field NodeNames, and returns the same list object if the same bytes arrive again.

    kube-scheduler calls prioritize with the nodes that passed filter, usually with the same list that it sent to
    filter. A table remembers the rows of the list object it saw last, so reusing the object saves 14 % of the CPU time
    of a prioritize call.
    """

    def __init__(self) -> None:
        self._last: tuple[msgspec.Raw, list[str]] = (msgspec.Raw(b"[]"), [])

    def read(self, raw: msgspec.Raw) -> list[str]:
        """Returns the node names in `raw`, the JSON of NodeNames. Raises MalformedRequest."""
        last_raw, names = self._last
        if raw != last_raw:
            if bytes(raw).count(b'"') > 2 * _MOST_NODES:
                raise MalformedRequest(f"NodeNames: more than {_MOST_NODES} names")
            names = decode_as(raw, list[str], "NodeNames")
            if len(memoryview(raw)) <= _LARGEST_KEPT_BYTES:
                self._last = (raw.copy(), names)
        return names


def decode_args(body: bytes, reader: NamesReader | None = None) -> ExtenderArgs:
    """Returns the decoded filter or prioritize request.

    Raises:
        MalformedRequest: the body is not JSON, lacks the pod, has neither NodeNames nor Nodes, or a node has no name.
    """
    fields = _fields(body, _ARGS)
    reader = reader or NamesReader()
    names = None if fields.node_names == NULL else reader.read(fields.node_names)
    nodes = None
    # A scheduler sends either nodes or names. If a request has both, only the names count.
    if fields.nodes != NULL and names is None:
        _check_text(body)
        _check_values(body, _FEWEST_BYTES_A_NODE_VALUE)
        items = _items(fields.nodes)
        if len(items) > _MOST_NODES:
            raise MalformedRequest(f"Nodes.items: more than {_MOST_NODES} nodes")
        nodes = [NodeBytes(raw) for raw in items]
    if names is None and nodes is None:
        raise MalformedRequest("neither NodeNames nor Nodes is given")
    pod, size_bytes = _pod(fields.pod)
    return ExtenderArgs(pod, names, nodes, size_bytes)


def decode_preemption_args(body: bytes) -> ExtenderPreemptionArgs:
    """Returns the decoded preempt request; its victims may be UIDs or whole pods.

    Raises:
        MalformedRequest: the body is not JSON, lacks the pod, or has neither map of victims.
    """
    fields = _fields(body, _PREEMPTION)
    by_node = _by_node(fields)
    if len(by_node) > _MOST_NODES:
        raise MalformedRequest(f"victims on more than {_MOST_NODES} nodes")
    victims = _VictimsByNode(by_node)
    count = 0
    for node_victims in victims.values():
        count += len(node_victims.uids)
        if count > _MOST_VICTIMS:
            raise MalformedRequest(f"more than {_MOST_VICTIMS} victims")
    return ExtenderPreemptionArgs(_pod(fields.pod)[0], victims)


def _by_node(fields: _PreemptionFields) -> dict[str, _VictimsFields]:
    maps = {"NodeNameToVictims": fields.node_name_to_victims, "NodeNameToMetaVictims": fields.node_name_to_meta_victims}
    decoded = []
    for key, raw in maps.items():
        _check_values(bytes(raw), _FEWEST_BYTES_A_VALUE, key)
        if (by_node := _victims_fields(raw, key)) is not None:
            decoded.append(by_node)
    if not decoded:
        raise MalformedRequest("neither NodeNameToVictims nor NodeNameToMetaVictims is given")
    return {node: victims for by_node in decoded for node, victims in by_node.items()}


def decode_binding_args(body: bytes) -> ExtenderBindingArgs:
    """Returns the decoded bind request.

    Raises:
        MalformedRequest: the body is not JSON, or one of the four fields is missing or empty.
    """
    try:
        args = _BINDING.decode(body)
        if args.pod_name and args.pod_namespace and args.pod_uid and args.node:
            return args
    except UNDECODABLE:
        pass  # the keys differ from Go's in case, or the body is faulty; reading it key by key shows which
    fields = _lower_fields(body)
    required = ("PodName", "PodNamespace", "PodUID", "Node")
    values = [optional_as(fields.get(name.lower()), str, name) or "" for name in required]
    missing = [name for name, value in zip(required, values, strict=True) if not value]
    if missing:
        raise MalformedRequest(f"{', '.join(missing)} missing or empty")
    return ExtenderBindingArgs(*values)


def _fields(body: bytes, decoder: msgspec.json.Decoder[_Fields]) -> _Fields:
    """Returns the fields of the body.

    If the pod, or all other fields, seem to be missing, the body is read again with keys in any case.
    """
    with suppress(*UNDECODABLE):  # `_lower_fields` reports the error
        fields = decoder.decode(body)
        pod, *others = msgspec.structs.astuple(fields)
        if pod != NULL and any(each != NULL for each in others):
            return fields
    form = decoder.type
    by_key = _lower_fields(body)
    return form(**{name: by_key.get(name.replace("_", ""), NULL) for name in form.__struct_fields__})


def _items(nodes: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        if (items := _NODE_LIST.decode(nodes).items) is not None:
            return items
    except UNDECODABLE:
        pass
    fields = lower_keys(decode_as(nodes, RawObject, "Nodes"))
    return optional_as(fields.get("items"), list[msgspec.Raw], "Nodes.items") or []


def _check_values(body: bytes, fewest_bytes: int, where: str = "the body") -> int:
    """Returns the approximate number of JSON values in the body.

    Raises:
        MalformedRequest: the body has so many values in so few bytes that it cannot be about a real cluster.
    """
    commas = body.count(b",")
    if commas > _MOST_SHORT_VALUES and len(body) < fewest_bytes * commas:
        raise MalformedRequest(f"{where} has {len(body)} bytes, too few for about {commas} values")
    return commas


def _check_text(body: bytes) -> None:
    """Raises MalformedRequest if the body is not UTF-8, because parts of it are copied into the answer."""
    try:
        body.isascii() or body.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the body is not UTF-8: {error}") from None


def _victims_fields(listed: msgspec.Raw, key: str) -> dict[str, _VictimsFields] | None:
    """Returns the victims on each node, not decoded yet, by node name; None if the JSON is null.

    If any node lacks the key `Pods`, the JSON is read again with keys in any case.
    """
    with suppress(*UNDECODABLE):  # the code below reports the error
        decoded: dict[str, _VictimsFields] | None = _VICTIMS.decode(listed)
        if decoded is None or all(fields.pods is not NULL for fields in decoded.values()):
            return decoded
    _check_few(bytes(listed), key)
    by_node = {}
    for node, raw in decode_as(listed, RawObject, key).items():
        fields = lower_keys(optional_as(raw, RawObject, f"victims of {node}") or {})
        violations = optional_as(fields.get("numpdbviolations"), int, f"victims of {node}: NumPDBViolations")
        by_node[node] = _VictimsFields(fields.get("pods", NULL), violations)
    return by_node


def _victims(fields: _VictimsFields, node: str) -> NodeVictims:
    if (commas := bytes(fields.pods).count(b",")) >= _MOST_VICTIMS:
        raise MalformedRequest(f"victims of {node}: about {commas} values, expected fewer than {_MOST_VICTIMS}")
    listed = optional_as(fields.pods, list[msgspec.Raw], f"victims of {node}: Pods") or []
    violations = fields.num_pdb_violations or 0
    if not 0 <= violations <= INT64_MAX:  # the answer repeats this number, and Go could not decode a larger one
        raise MalformedRequest(f"victims of {node}: NumPDBViolations: {violations}: expected 0 to {INT64_MAX}")
    uids: list[str] = []
    pods: list[Pod] = []
    for item in listed:
        entry = lower_keys(decode_as(item, RawObject, f"victims of {node}: Pods[]"))
        if "uid" in entry:
            uids.append(decode_as(entry["uid"], str, f"victims of {node}: Pods[].UID"))
        else:
            pod = decode_as(item, Pod, f"victims of {node}: Pods[]")
            if not pod.uid:
                raise MalformedRequest(f"victims of {node}: Pods[]: a pod without a UID")
            pods.append(pod)
    return NodeVictims([pod.uid for pod in pods] + uids, pods or None, violations)


def _pod(raw: msgspec.Raw) -> tuple[Pod, int]:
    """Returns the pod, and an upper estimate of its memory in bytes, including data that rules derive."""
    size_bytes = 4 * len(memoryview(raw)) + 300 * _check_values(bytes(raw), _FEWEST_BYTES_A_VALUE, "Pod")
    pod = optional_as(raw, Pod, "Pod")
    if pod is None or not pod.uid or not pod.name:
        raise MalformedRequest("Pod: expected a pod with a name and a UID")
    if max(len(pod.uid), len(pod.name), len(pod.namespace)) > _LONGEST_NAME:
        raise MalformedRequest(f"Pod: a name, namespace or UID is longer than {_LONGEST_NAME} characters")
    return pod, size_bytes


def _check_few(body: bytes, where: str) -> None:
    """Raises MalformedRequest if the JSON has so many values that reading it key by key would hold up other calls."""
    if (values := body.count(b",")) > _MOST_SHORT_VALUES:
        raise MalformedRequest(
            f"{where} has about {values} values, too many unless all keys are as kube-scheduler writes them"
        )


def _lower_fields(body: bytes) -> RawObject:
    _check_few(body, "the body")
    try:
        return lower_keys(_OBJECT.decode(body))
    except UNDECODABLE as error:
        raise MalformedRequest(f"the body is not a JSON object of the expected form: {error}") from None


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: NodeList | None
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


def encode(result: ExtenderPreemptionResult | ExtenderBindingResult) -> bytes:
    """Returns the answer to preempt or bind as JSON."""
    return _ENCODER.encode(result)


def encode_priorities(result: HostPriorityList) -> bytes:
    return _ENCODER.encode(list(map(HostPriority, result.hosts, result.scores.tolist())))


def encode_filter(result: ExtenderFilterResult) -> bytes:
    """Returns the answer to filter as JSON."""
    names, nodes = result.node_names, result.nodes
    if result.best:
        names = None if names is None else [result.best]
        nodes = None if nodes is None else [node for node in nodes if node.name == result.best]
    items = None if nodes is None else NodeList({}, [node.raw for node in nodes])
    refused = result.failed_nodes, result.failed_and_unresolvable_nodes
    return _ENCODER.encode(_FilterResult(items, names, *refused, result.error))


MAX_EXTENDER_PRIORITY = 10


def validate_filter(asked: Sequence[str], result: ExtenderFilterResult) -> None:
    """Raises InvalidAnswer unless every requested node passes or has a reason, and no other node is named."""
    refused = [*result.failed_nodes, *result.failed_and_unresolvable_nodes]
    passed = result.passed
    if result.best and result.best not in passed:
        raise InvalidAnswer(f"filter: the best node {result.best} is not among the nodes that passed")
    if result.error or (passed == asked and not refused):
        return
    requested = set(asked)
    answered = {*passed, *refused}
    if unknown := answered - requested:
        raise InvalidAnswer(f"filter: the request does not name the nodes {_some(unknown)}")
    if dropped := requested - answered:
        raise InvalidAnswer(f"filter: nodes dropped without a reason: {_some(dropped)}")
    if len(set(passed)) + len(refused) != len(answered):
        raise InvalidAnswer("filter: the answer names a node twice")


def validate_prioritize(asked: Sequence[str], result: HostPriorityList) -> None:
    """Raises InvalidAnswer unless there is one integer of 0..10 for each requested node."""
    hosts, scores = result.hosts, result.scores
    if len(scores) != len(hosts) or (hosts != asked and sorted(hosts) != sorted(set(asked))):
        raise InvalidAnswer("prioritize: the answer does not name each requested node exactly once")
    if scores.dtype != np.int64 or scores.min(initial=0) < 0 or scores.max(initial=0) > MAX_EXTENDER_PRIORITY:
        raise InvalidAnswer(f"prioritize: a score is not an integer from 0 to {MAX_EXTENDER_PRIORITY}")


def validate_preempt(asked: Mapping[str, NodeVictims], result: ExtenderPreemptionResult) -> None:
    """Raises InvalidAnswer if a node is not in the request, or its victims lack distinct, non-empty UIDs.

    A node may be without victims only if the request has none for it, as requests may since Kubernetes 1.38.
    """
    victims = result.node_name_to_meta_victims
    if unknown := victims.keys() - asked.keys():
        raise InvalidAnswer(f"preempt: the request does not name the nodes {_some(unknown)}")
    for node, node_victims in victims.items():
        uids = [pod.uid for pod in node_victims.pods]
        is_missing = not uids and bool(asked[node].uids)
        if is_missing or not all(uids) or len(set(uids)) != len(uids) or node_victims.num_pdb_violations < 0:
            raise InvalidAnswer(f"preempt: {node} has no victims, or a victim without a UID or named twice")


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
