"""Implements the caller's side of the protocol: encodes requests to another extender, and decodes its answers.

Keys in answers may be in upper or lower case, as for Go. Objects are sent as the JSON that the API server delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from extender.errors import MalformedAnswer
from extender.extender_v1.messages import ExtenderBindingArgs, HostPriority, MetaPod, MetaVictims, NodeList
from extender.runtime.ports import Binding

T = TypeVar("T")

_ENCODE = msgspec.json.Encoder().encode
_INT64 = range(-(2**63), 2**63)


class _Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw
    nodes: NodeList | None
    node_names: Sequence[str] | None


class _Victims(msgspec.Struct, frozen=True):
    pods: list[msgspec.Raw] | None = msgspec.field(name="Pods")
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations")


class _PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    pod: msgspec.Raw
    node_name_to_victims: dict[str, _Victims] | None
    node_name_to_meta_victims: dict[str, MetaVictims] | None


class Offer(msgspec.Struct, frozen=True):
    """The victims on one node, most important first.

    Attributes:
        uids: the UID of each victim.
        pods: the victims as JSON, for an extender that does not cache pods; otherwise empty.
    """

    uids: list[str]
    num_pdb_violations: int
    pods: list[bytes] = []


class Filtered(msgspec.Struct, frozen=True):
    """The answer to filter: the names of the nodes that passed, and the reason for each other node."""

    passed: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]
    error: str


def encode_args(pod: bytes, names: Sequence[str] | None, nodes: Sequence[bytes] = ()) -> bytes:
    """Returns a filter or prioritize request with node `names`, or with whole `nodes` if `names` is None."""
    listed = None if names is not None else NodeList({}, [msgspec.Raw(node) for node in nodes])
    return _ENCODE(_Args(msgspec.Raw(pod), listed, names))


def encode_preemption_args(pod: bytes, offers: Mapping[str, Offer], *, names: bool) -> bytes:
    """Returns a preempt request. If `names` is True, it has the UIDs of the victims instead of whole pods."""
    raw = msgspec.Raw(pod)
    if names:
        meta = {node: MetaVictims([MetaPod(uid) for uid in o.uids], o.num_pdb_violations) for node, o in offers.items()}
        return _ENCODE(_PreemptionArgs(raw, None, meta))
    whole = {
        # Go writes null for a list to which nothing was appended.
        node: _Victims([msgspec.Raw(victim) for victim in offer.pods] or None, offer.num_pdb_violations)
        for node, offer in offers.items()
    }
    return _ENCODE(_PreemptionArgs(raw, whole, None))


def encode_binding_args(binding: Binding) -> bytes:
    return _ENCODE(ExtenderBindingArgs(binding.name, binding.namespace, binding.uid, binding.node))


def decode_filtered(body: bytes, *, names: bool) -> Filtered:
    """Returns the decoded answer to filter. Raises MalformedAnswer.

    Args:
        names: True if the request gave node names. The answer may then have names too, instead of whole nodes.
    """
    fields = _fields(_decoded(body, "the answer"), "the answer")
    passed = _read(fields, "NodeNames", list[str], None) if names else None
    if passed is None:
        nodes = _fields(_read(fields, "Nodes", dict[str, Any], {}), "Nodes")
        passed = [_name_of(node) for node in _read(nodes, "items", list[Any], [])]
    failed = _read(fields, "FailedNodes", dict[str, str], {})
    unresolvable = _read(fields, "FailedAndUnresolvableNodes", dict[str, str], {})
    return Filtered(passed, failed, unresolvable, _read(fields, "Error", str, ""))


_PRIORITIES = msgspec.json.Decoder(list[HostPriority])


def decode_priorities(body: bytes) -> list[HostPriority]:
    """Returns the decoded answer to prioritize. Raises MalformedAnswer."""
    try:
        priorities = _PRIORITIES.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # the keys may differ from Go's in upper and lower case
        entries = _converted(_decoded(body, "the answer"), list[Any] | None, "the answer") or []
        priorities = [_priority(entry) for entry in entries]
    if any(each.score not in _INT64 for each in priorities):
        raise MalformedAnswer("Score: expected an integer of 64 bits")
    return priorities


def decode_preemption_result(body: bytes) -> dict[str, Offer]:
    """Returns the answer to preempt: the victims on each accepted node, by node name. Raises MalformedAnswer."""
    fields = _fields(_decoded(body, "the answer"), "the answer")
    by_node = _read(fields, "NodeNameToMetaVictims", dict[str, Any], {})
    return {node: _offer(victims, f"victims of {node}") for node, victims in by_node.items()}


def decode_binding_result(body: bytes) -> str:
    """Returns the error in the answer to bind; "" if the pod is bound. Raises MalformedAnswer."""
    error: str = _read(_fields(_decoded(body, "the answer"), "the answer"), "Error", str, "")
    return error


def _offer(victims: object, where: str) -> Offer:
    fields = _fields(_converted(victims, dict[str, Any], where), where)
    entries = [_fields(_converted(pod, dict[str, Any], where), where) for pod in _read(fields, "Pods", list[Any], [])]
    violations = _read(fields, "NumPDBViolations", int, 0)
    if violations not in _INT64:
        raise MalformedAnswer(f"{where}: NumPDBViolations: expected an integer of 64 bits")
    return Offer([_read(entry, "UID", str, "") for entry in entries], violations)


def _priority(entry: object) -> HostPriority:
    fields = _fields(entry, "the answer")
    return HostPriority(_read(fields, "Host", str, ""), _read(fields, "Score", int, 0))


def _name_of(node: object) -> str:
    metadata = _fields(_fields(node, "Nodes.items[]").get("metadata"), "Nodes.items[]: metadata")
    name: str = _read(metadata, "name", str, "")
    return name


def _decoded(body: bytes, where: str) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAnswer(f"{where}: {error}") from None


def _fields(value: object, where: str) -> Mapping[str, object]:
    """Returns a JSON object's fields by lower-case key; null counts as an object without fields."""
    return {key.lower(): item for key, item in (_converted(value, dict[str, Any] | None, where) or {}).items()}


def _read(fields: Mapping[str, object], name: str, form: type[T], missing: Any) -> Any:
    value = fields.get(name.lower())
    return missing if value is None else _converted(value, form, name)


def _converted(value: object, form: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise MalformedAnswer(f"{where}: {error}") from None
