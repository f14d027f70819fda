"""The smallest change for volumes and devices on generated cases, as in test_changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as replaced
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.model.devices import DeviceRequest, ResourceClaim
from extender.offline.explain.suggestion import SuggestedChange
from tests.builders import (
    Object,
    expression,
    make_alternative,
    make_claim,
    make_csi_node,
    make_device,
    make_device_class,
    make_pod,
    make_prioritized_list,
    make_pv,
    make_pvc,
    make_request,
    make_resource_slice,
    make_storage_class,
    node_term,
)
from tests.builders.pod import PodBuilder
from tests.offline.explain.test_changes import cases, check_changes, demand, models
from tests.offline.explain.test_claim_changes import using

pytestmark = pytest.mark.slow


@st.composite
def cases_of_claims(draw: Any, focus: str) -> tuple[Object, list[Object]]:
    _, objects = draw(cases("node-selection"))
    pod = make_pod("p").label(app="x").priority(10).req(cpu="10m", memory="1Ki")
    nodes = sum(obj["kind"] == "Node" for obj in objects)
    if draw(st.integers(0, 2)) == 0:
        demand(draw, draw(st.sampled_from(("requests", "node-selection", "spread"))), pod)
    more = _volumes(draw, pod, nodes) if focus == "volumes" else _devices(draw, pod)
    return pod.obj(), [*objects, *more]


def _volumes(draw: Any, pod: PodBuilder, nodes: int) -> list[Object]:
    """Claims in every state, the volumes of those that are bound, their other users, and limits."""
    objects = [
        make_storage_class(name, wait=draw(st.booleans())) for name in draw(st.sampled_from(("", "s", "sf", "sf")))
    ]
    for name in draw(st.sampled_from((("a",), ("a", "b")))):
        pod.pvc(name)
        state = draw(st.sampled_from(("missing", "unbound", "bound", "bound", "bound")))
        mode = draw(st.sampled_from(("ReadWriteOnce", "ReadWriteOncePod")))
        volume = f"v-{name}" if state == "bound" else None
        storage_class = draw(st.sampled_from("sfx"))
        if state != "missing":
            objects.append(make_pvc(name, storage_class=storage_class, access_mode=mode, volume=volume))
        if volume:
            terms = [node_term(expression("rack", "In", draw(st.sampled_from("123"))))] if draw(st.booleans()) else []
            objects.append(make_pv(volume, access_mode=mode, node_terms=terms, claim=f"default/{name}"))
            if draw(st.booleans()):
                objects.append(make_pod(f"user-{name}").pvc(name).priority(draw(st.integers(0, 20))).node("n0").obj())
    if draw(st.booleans()):
        objects += [
            make_csi_node(f"n{number}", {"csi.example.com": draw(st.integers(0, 2))}) for number in range(nodes)
        ]
    return objects


def _devices(draw: Any, pod: PodBuilder) -> list[Object]:
    """Devices on the first node, some of them taken, and a claim to more, to others, or of no class."""
    kinds = [
        make_device(f"d{number}", {"kind": draw(st.sampled_from("ab"))}) for number in range(draw(st.integers(1, 4)))
    ]
    taken = draw(st.integers(0, len(kinds)))
    users = [obj for number in range(taken) for obj in using(f"user-{number}", f"d{number}", node="n0")]
    selectors = draw(
        st.lists(st.sampled_from([f"device.attributes['gpu.example.com'].kind == '{k}'" for k in "abc"]), max_size=2)
    )
    classes = st.sampled_from(("gpu",) * 5 + ("none",))
    request = make_request("r", draw(classes), *selectors, count=draw(st.integers(1, 4)))
    if draw(st.booleans()):
        first = make_alternative("x", draw(classes), *selectors, count=draw(st.integers(1, 4)))
        second = make_alternative("y", draw(classes), count=draw(st.integers(1, 6)))
        request = make_prioritized_list("r", first, second)
    pod.resource_claim("mine")
    return [
        make_resource_slice("n0", "gpu.example.com", *kinds),
        make_device_class("gpu"),
        make_claim("mine", request),
        *users,
    ]


@pytest.mark.parametrize("focus", ["volumes", "devices"])
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_change_of_claims_lets_the_pod_run_and_no_smaller_one_of_its_kind_does(
    focus: str, data: st.DataObject
) -> None:
    manifest, objects = data.draw(cases_of_claims(focus))
    check_changes(manifest, objects, lambda change, _pod: _less_of(change, objects))


def _less_of(change: SuggestedChange, objects: list[Object]) -> Iterator[SuggestedChange]:
    """The same with an object or a removal left out, with the pod as it was, and with one more device."""
    kind, _, of_pod = change.kind.partition("+")
    if kind not in ("volume-claim", "device-claim", "free-devices", "remove-pods"):
        return
    if of_pod:
        yield replaced(change, pod=None)
    for size in range(len(change.set_objects)):
        yield from (replaced(change, set_objects=kept) for kept in combinations(change.set_objects, size))
    for size in range(len(change.removed)) if change.kind == "remove-pods" else ():
        yield from (replaced(change, removed=kept) for kept in combinations(change.removed, size))
    if kind == "device-claim" and change.text.startswith("ask for"):
        (mine,) = (each for each in models(*objects) if isinstance(each, ResourceClaim) and each.name == "mine")
        (claim,) = change.set_objects
        assert isinstance(claim, ResourceClaim)
        given_up = sum(_counts(mine.requests[0])) - sum(_counts(claim.requests[0]))
        for less in range(1, given_up):
            for request in _with_less(mine.requests[0], less):
                spec = replace(mine.spec, devices=replace(mine.spec.devices, requests=[request]))
                yield replaced(change, set_objects=(replace(mine, spec=spec),))


def _counts(request: DeviceRequest) -> list[int]:
    return [each.count for each in ([request.exactly] if request.exactly else request.first_available or [])]


def _with_less(request: DeviceRequest, less: int) -> Iterator[DeviceRequest]:
    """The request for that many devices less, in each alternative by itself."""
    if request.exactly:
        yield replace(request, exactly=replace(request.exactly, count=request.exactly.count - less))
    alternatives = request.first_available or []
    for at, each in enumerate(alternatives):
        if each.count > less:
            fewer = replace(each, count=each.count - less)
            yield replace(request, first_available=[*alternatives[:at], fewer, *alternatives[at + 1 :]])
