"""The payloads of k8s.io/kube-scheduler/extender/v1: bytes to values and back.

Schedulers send the wrapper's keys with Go's names, older ones in lower case; so they are read in any case and written
in exact case. Pods are decoded to the model. Nodes stay raw bytes until somebody asks, and are echoed as they came.
An absent list is None and an empty one is [], for the scheduler tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.errors import MalformedRequest
from extender.model.node import Node
from extender.model.pod import Pod

T = TypeVar("T")
RawObject = dict[str, msgspec.Raw]

_OBJECT = msgspec.json.Decoder(RawObject)
_ENCODER = msgspec.json.Encoder()
# Go writes the name first of all; anything else is decoded in full.
_NAME_FIRST = re.compile(rb'\s*\{"metadata":\{"name":"([^"\\]{1,253})"')


class NodeBytes:
    """One Node of a request as it came; decoded when it is looked into."""

    __slots__ = ("__dict__", "name", "raw")

    def __init__(self, raw: msgspec.Raw) -> None:
        self.raw = raw
        named = _NAME_FIRST.match(raw)
        self.name = named[1].decode() if named else self.node.name
        if not self.name:
            raise MalformedRequest("Nodes.items[]: a node without a name")

    @cached_property
    def node(self) -> Node:
        return _decode(self.raw, Node, "Nodes.items[]")


class Names(list[str]):
    """NodeNames as they came, and the JSON that they came as, where it can be put into an answer; else b""."""

    __slots__ = ("json",)

    def __init__(self, names: list[str], json: bytes) -> None:
        super().__init__(names)
        self.json = json if _is_compact(json, len(names)) else b""


class ExtenderArgs(msgspec.Struct, frozen=True):
    """What filter and prioritize are asked: one pod (of `pod_bytes` bytes), and either names or whole nodes."""

    pod: Pod
    node_names: list[str] | None
    nodes: list[NodeBytes] | None
    pod_bytes: int = 0

    @property
    def names(self) -> list[str]:
        """The names asked about, whichever way they came."""
        if self.node_names is not None:
            return self.node_names
        return [node.name for node in self.nodes or ()]


class Victims(msgspec.Struct, frozen=True):
    """Pods to be evicted from one node: UIDs in descending importance, whole pods where the request had them."""

    uids: list[str]
    pods: list[Pod] | None = None
    pdb_violations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True):
    """What preempt is asked: the preemptor, and the scheduler's candidates by node name."""

    pod: Pod
    victims: dict[str, Victims]


class ExtenderBindingArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """What bind is asked."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class ExtenderFilterResult(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that passed, in the form in which they were asked about, and the reason for every other."""

    nodes: list[NodeBytes] | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""

    @property
    def passed(self) -> list[str]:
        """The names of the nodes that passed."""
        if self.node_names is not None:
            return self.node_names
        return [node.name for node in self.nodes or ()]


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """The score of one node: an integer of 0..10."""

    host: str
    score: int


class HostPriorityList(msgspec.Struct, frozen=True):
    """The scores of nodes by position, int64[n] of 0..10, as prioritize answers them: a HostPriority each."""

    hosts: list[str]
    scores: NDArray[np.int64]


class MetaPod(msgspec.Struct, frozen=True):
    """A victim by its UID."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    """The victims on one node, in descending importance."""

    pods: list[MetaPod] = msgspec.field(name="Pods")
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations")


class ExtenderPreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The candidates that are left; none: preemption does not help."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class ExtenderBindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Empty where the pod is bound; else the cause."""

    error: str = ""


_NOTHING = msgspec.Raw(b"null")


class _ArgsFields(msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    pod: msgspec.Raw = _NOTHING
    nodes: msgspec.Raw = _NOTHING
    node_names: msgspec.Raw = _NOTHING


class _NodeList(msgspec.Struct, frozen=True):
    metadata: dict[str, str]
    items: list[msgspec.Raw]


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: _NodeList | None
    node_names: list[str] | msgspec.Raw | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


def encode(result: ExtenderPreemptionResult | ExtenderBindingResult) -> bytes:
    """The answer's bytes, with Go's names."""
    return _ENCODER.encode(result)


def encode_priorities(result: HostPriorityList) -> bytes:
    """The answer's bytes, with Go's names; names as they came, where that can be."""
    hosts, scores = result.hosts, result.scores
    if not isinstance(hosts, Names) or not hosts.json:
        return _ENCODER.encode(list(map(HostPriority, hosts, scores.tolist())))
    # Every score is two characters wide, a blank and a digit below 10: they are all put in at once, where there are
    # zero bytes, which no JSON has.
    parts = hosts.json[1:-1].replace(b'","', b'","Score":\0\0},{"Host":"')
    text = bytearray(b'[{"Host":%b,"Score":\0\0}]' % parts)
    characters = np.frombuffer(text, np.uint8)
    characters[characters == 0] = _TWO_WIDE[scores].ravel()
    return bytes(text)


_TWO_WIDE = np.frombuffer(b" 0 1 2 3 4 5 6 7 8 910", np.uint8).reshape(-1, 2)


def encode_filter(result: ExtenderFilterResult) -> bytes:
    """The answer's bytes, with Go's names; whole nodes as they came."""
    nodes = None if result.nodes is None else _NodeList({}, [node.raw for node in result.nodes])
    names: list[str] | msgspec.Raw | None = result.node_names
    if isinstance(names, Names) and names.json:
        names = msgspec.Raw(names.json)
    refused = result.failed_nodes, result.failed_and_unresolvable_nodes
    return _ENCODER.encode(_FilterResult(nodes, names, *refused, result.error))


def _is_compact(array: bytes, strings: int) -> bool:
    """Whether a JSON array of so many strings has no blanks and escapes, so that `","` separates them.

    It does if it is there once less than there are strings, and neither the first nor the last string is a comma.
    """
    return (
        array.startswith(b'["')
        and array.endswith(b'"]')
        and b"\\" not in array
        and array.count(b'","') == strings - 1
        and not array.startswith(b'[","')
        and not array.endswith(b'","]')
    )


class ArgsReader:
    """Pods and names, where calls follow one another: what comes again as it was is the same object.

    A scheduler asks prioritize about the pod and the nodes that filter has let through, as a rule all it had asked
    about. Who knows them again need not look them up.
    """

    def __init__(self) -> None:
        self._names: tuple[msgspec.Raw, list[str]] = msgspec.Raw(b"[]"), []
        self._pod: tuple[msgspec.Raw, Pod | None] = _NOTHING, None

    def names(self, raw: msgspec.Raw) -> list[str]:
        """The names; raises MalformedRequest where they are none."""
        known, names = self._names
        if raw != known:
            names = _decode(raw, list[str], "NodeNames")
            if len(memoryview(raw)) <= _MOST_KEPT_BYTES:
                json = bytes(raw)
                names = Names(names, json)
                self._names = msgspec.Raw(json), names
        return names

    def pod(self, raw: msgspec.Raw) -> Pod:
        """The pod; raises MalformedRequest where it is none."""
        known, pod = self._pod
        if pod is None or raw != known:
            pod = _pod(raw)
            if len(memoryview(raw)) <= _MOST_KEPT_BYTES:
                self._pod = raw.copy(), pod
        return pod


def decode_args(body: bytes, reader: ArgsReader | None = None) -> ExtenderArgs:
    """A filter or prioritize request.

    Raises:
        MalformedRequest: the body is no JSON, lacks the pod, has neither NodeNames nor Nodes, or a node has no name.
    """
    fields, reader = _args_fields(body), reader or ArgsReader()
    names = None if _is_null(fields.node_names) else reader.names(fields.node_names)
    listed = _optional(fields.nodes, RawObject, "Nodes")
    nodes = None
    if listed is not None and names is None:  # both would be two questions; a scheduler asks one
        _check_text(body)
        items = _optional(_lower(listed).get("items"), list[msgspec.Raw], "Nodes.items")
        nodes = [NodeBytes(raw) for raw in items or ()]
    if names is None and nodes is None:
        raise MalformedRequest("neither NodeNames nor Nodes is given")
    return ExtenderArgs(reader.pod(fields.pod), names, nodes, len(memoryview(fields.pod)))


def decode_preemption_args(body: bytes) -> ExtenderPreemptionArgs:
    """A preempt request, in either form.

    Raises:
        MalformedRequest: the body is no JSON, lacks the pod, or has neither map of victims.
    """
    fields = _fields(body, "the body")
    victims: dict[str, Victims] = {}
    given = False
    for key in ("nodenametovictims", "nodenametometavictims"):
        by_node = _optional(fields.get(key), RawObject, key)
        given = given or by_node is not None
        victims.update({node: _victims(raw, node) for node, raw in (by_node or {}).items()})
    if not given:
        raise MalformedRequest("neither NodeNameToVictims nor NodeNameToMetaVictims is given")
    return ExtenderPreemptionArgs(_pod(fields.get("pod", _NOTHING)), victims)


def decode_binding_args(body: bytes) -> ExtenderBindingArgs:
    """A bind request.

    Raises:
        MalformedRequest: the body is no JSON, or one of the four fields is missing or empty.
    """
    try:
        args = _BINDING.decode(body)
        if args.pod_name and args.pod_namespace and args.pod_uid and args.node:
            return args
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # The keys are in another case than Go's, or there is a fault to be told of.
    fields = _fields(body, "the body")
    wanted = ("PodName", "PodNamespace", "PodUID", "Node")
    values = [_optional(fields.get(name.lower()), str, name) or "" for name in wanted]
    missing = [name for name, value in zip(wanted, values, strict=True) if not value]
    if missing:
        raise MalformedRequest(f"{', '.join(missing)} missing or empty")
    return ExtenderBindingArgs(*values)


def _args_fields(body: bytes) -> _ArgsFields:
    try:
        return _ARGS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # The keys are in another case than Go's, or there are more, or there is a fault to be told of.
    fields = _fields(body, "the body")
    return _ArgsFields(*(fields.get(name, _NOTHING) for name in ("pod", "nodes", "nodenames")))


def _check_text(body: bytes) -> None:
    """Nodes are echoed unparsed: what is no text in them would be none in the answer."""
    try:
        body.isascii() or body.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the body is not UTF-8: {error}") from None


def _victims(raw: msgspec.Raw, node: str) -> Victims:
    fields = _lower(_optional(raw, RawObject, f"victims of {node}") or {})
    listed = _optional(fields.get("pods"), list[msgspec.Raw], f"victims of {node}: Pods") or []
    violations = _optional(fields.get("numpdbviolations"), int, f"victims of {node}: NumPDBViolations") or 0
    uids: list[str] = []
    pods: list[Pod] = []
    for item in listed:
        entry = _lower(_decode(item, RawObject, f"victims of {node}: Pods[]"))
        if "uid" in entry:
            uids.append(_decode(entry["uid"], str, f"victims of {node}: Pods[].UID"))
        else:
            pods.append(_decode(item, Pod, f"victims of {node}: Pods[]"))
    return Victims([pod.uid for pod in pods] + uids, pods or None, violations)


def _pod(raw: msgspec.Raw) -> Pod:
    pod = _optional(raw, Pod, "Pod")
    if pod is None or not pod.uid or not pod.name:
        raise MalformedRequest("Pod is missing, or has no name and UID")
    return pod


def _fields(body: bytes, where: str) -> RawObject:
    try:
        return _lower(_OBJECT.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"{where} is not the JSON object expected: {error}") from None


def _lower(fields: Mapping[str, msgspec.Raw]) -> RawObject:
    return {key.lower(): value for key, value in fields.items()}


def _optional(raw: msgspec.Raw | None, form: type[T], where: str) -> T | None:
    if raw is None or _is_null(raw):
        return None
    return _decode(raw, form, where)


def _is_null(raw: msgspec.Raw) -> bool:
    return raw == _NOTHING


_MOST_KEPT_BYTES = 1024 * 1024
_STORED = (Pod, Node)
# The API server takes requests of up to 3 MiB, and etcd values of up to 1.5. Empty structures are a hundred times as
# large in memory as in JSON.
_LARGEST_OBJECT_BYTES = 3 * 1024 * 1024

_ARGS = msgspec.json.Decoder(_ArgsFields)
_BINDING = msgspec.json.Decoder(ExtenderBindingArgs)
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decode(raw: msgspec.Raw, form: type[T], where: str) -> T:
    if form in _STORED and (size := len(memoryview(raw))) > _LARGEST_OBJECT_BYTES:
        raise MalformedRequest(f"{where}: {size} bytes, and no API server keeps an object of that size")
    decoder = _DECODERS.get(form) or _DECODERS.setdefault(form, msgspec.json.Decoder(form))
    try:
        value: T = decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequest(f"{where}: {error}") from None
    return value
