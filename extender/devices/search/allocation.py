"""What goes into a claim's status when its devices are chosen. Source: structured Allocate, createNodeSelector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from extender.devices.search.capacity import quantity_of
from extender.devices.search.choice import Pick
from extender.devices.search.questions import Ask
from extender.framework.node_affinity import NODE_NAME_FIELD
from extender.model.devices.claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

NewShareID = Callable[[], str]
FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"


def allocation_of(
    claim: ResourceClaim, picks: Sequence[Pick], node_name: str, new_share_id: NewShareID
) -> AllocationResult:
    """The allocation of the chosen devices to the claim, for a pod on the node."""
    results = [_result(pick, new_share_id) for pick in picks]
    config = list(_configuration(claim, picks))
    return AllocationResult(
        devices=DeviceAllocationResult(results=results, config=config or None),
        node_selector=_node_selector(picks, node_name),
    )


def _result(pick: Pick, new_share_id: NewShareID) -> DeviceRequestAllocationResult:
    amounts = {name: quantity_of(nanos) for name, nanos in (pick.amounts or {}).items()}
    device = pick.device
    return DeviceRequestAllocationResult(
        request=pick.ask.name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=pick.ask.admin or None,
        tolerations=pick.ask.request.tolerations,
        binding_conditions=device.spec.binding_conditions,
        binding_failure_conditions=device.spec.binding_failure_conditions,
        share_id=new_share_id() if device.shareable else None,
        consumed_capacity=dict(amounts) or None,
    )


def _configuration(claim: ResourceClaim, picks: Sequence[Pick]) -> Iterator[DeviceAllocationConfiguration]:
    """The classes' configuration, each class' once, and then the claim's own; without requests it is for all."""
    chosen = {pick.ask.parent: pick.ask for pick in picks}
    asks = [chosen[request.name] for request in claim.requests if request.name in chosen]
    by_class: dict[str, list[Ask]] = {}
    for ask in asks:
        if ask.device_class is not None:
            by_class.setdefault(ask.device_class.name, []).append(ask)
    for of_class in by_class.values():
        device_class = of_class[0].device_class
        for config in (device_class.spec.config if device_class else None) or ():
            yield _applied(FROM_CLASS, [ask.name for ask in of_class], asks, config.opaque)
    for own in claim.spec.devices.config or ():
        named = own.requests or []
        if not named or any(ask.name in named or ask.parent in named for ask in asks):
            yield _applied(FROM_CLAIM, named, asks, own.opaque)


def _applied(
    source: str, requests: list[str], asks: Sequence[Ask], opaque: dict[str, object] | None
) -> DeviceAllocationConfiguration:
    to_all = all(ask.name in requests or ask.parent in requests for ask in asks)
    return DeviceAllocationConfiguration(source=source, requests=None if to_all else requests or None, opaque=opaque)


def _node_selector(picks: Sequence[Pick], node_name: str) -> NodeSelector | None:
    """The nodes that reach all the devices; None: every node."""
    term = NodeSelectorTerm()
    for pick in picks:
        spec = pick.device.slice.spec
        selecting = pick.device.spec if spec.per_device_node_selection else spec
        if selecting.node_name is not None or pick.device.spec.binds_to_node:
            only = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=[node_name])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        for more in (selecting.node_selector.node_selector_terms if selecting.node_selector else None) or ():
            term = _both(term, more)
    return NodeSelector(node_selector_terms=[term]) if term.match_fields or term.match_expressions else None


def _both(term: NodeSelectorTerm, more: NodeSelectorTerm) -> NodeSelectorTerm:
    return msgspec.structs.replace(
        term,
        match_fields=_joined(term.match_fields, more.match_fields),
        match_expressions=_joined(term.match_expressions, more.match_expressions),
    )


def _joined(
    first: list[NodeSelectorRequirement] | None, more: list[NodeSelectorRequirement] | None
) -> list[NodeSelectorRequirement] | None:
    joined = list(first or ())
    known = {_comparable(requirement) for requirement in joined}
    for requirement in more or ():
        if _comparable(requirement) not in known:
            known.add(_comparable(requirement))
            joined.append(requirement)
    return joined or None


def _comparable(requirement: NodeSelectorRequirement) -> tuple[str, str, frozenset[str]]:
    return requirement.key, requirement.operator, frozenset(requirement.values or ())
