"""The payloads of k8s.io/kube-scheduler/extender/v1 as values.

An absent list is None and an empty one is [], for the scheduler tells them apart.
"""

from __future__ import annotations

import re
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from extender.errors import MalformedRequest
from extender.extender_v1.fields import decode_as
from extender.model.node import Node
from extender.model.pod import Pod

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
        return decode_as(self.raw, Node, "Nodes.items[]")


class ExtenderArgs(msgspec.Struct, frozen=True):
    """A request to filter or prioritize: one pod (of `pod_bytes` bytes of JSON), and either names or whole nodes."""

    pod: Pod
    node_names: list[str] | None
    nodes: list[NodeBytes] | None
    pod_bytes: int = 0

    @property
    def names(self) -> list[str]:
        """Returns the names asked about, in either form of the request."""
        if self.node_names is not None:
            return self.node_names
        return [node.name for node in self.nodes or ()]


class NodeVictims(msgspec.Struct, frozen=True):
    """Pods to be evicted from one node: UIDs in descending importance, whole pods where the request had them."""

    uids: list[str]
    pods: list[Pod] | None = None
    pdb_violations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True):
    """A request to preempt: the preemptor, and the scheduler's candidates by node name."""

    pod: Pod
    victims: dict[str, NodeVictims]


class ExtenderBindingArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """A request to bind."""

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
        """Returns the names of the nodes that passed."""
        if self.node_names is not None:
            return self.node_names
        return [node.name for node in self.nodes or ()]


class HostPriority(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
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
