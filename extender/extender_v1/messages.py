"""Defines the requests and answers of the extender protocol (k8s.io/kube-scheduler/extender/v1).

A missing list is None and an empty list is [], because kube-scheduler distinguishes them.
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
