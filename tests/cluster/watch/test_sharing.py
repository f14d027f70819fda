"""Replicas share equal parts, and are otherwise what the API server sent."""

from __future__ import annotations

import json
import tracemalloc

import msgspec
import pytest

from extender.cluster.watch.api_objects import decoders
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from tests.builders import PodBuilder, make_pod


def replica(name: str, **requests: str) -> PodBuilder:
    pod = make_pod(name).label(app="web").req(**requests).node(f"node-of-{name}")
    return pod.toleration("dedicated", "infra").phase("Running").anti_affinity("zone", labels={"app": "web"})


def test_a_page_of_replicas_keeps_each_part_once() -> None:
    sent = [replica(name, cpu="1").obj() for name in ("a", "b")] + [replica("c", cpu="2").obj()]
    decode_page, decode_object = decoders(KINDS["Pod"])
    a, b, c = decode_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": sent}).encode()).items or []
    later = decode_object(msgspec.Raw(json.dumps(sent[0]).encode()))
    for one, two in ((a, b), (a, later)):
        assert isinstance(one, Pod) and isinstance(two, Pod)
        for field in ("containers", "tolerations", "affinity"):
            assert getattr(one.spec, field) is getattr(two.spec, field)
        assert one.metadata.labels is two.metadata.labels
    assert isinstance(c, Pod) and isinstance(a, Pod)
    assert c.spec.containers != a.spec.containers
    assert [a, b, c, later] == [msgspec.convert(obj, Pod) for obj in [*sent, sent[0]]]


@pytest.mark.parametrize("fields", [{}, {"spec": None}, {"metadata": {"name": "p"}, "status": {"conditions": None}}])
def test_pods_without_parts_are_read(fields: dict[str, object]) -> None:
    sent = {"metadata": {"name": "p"}, **{key: value for key, value in fields.items() if value is not None}}
    assert decoders(KINDS["Pod"])[1](msgspec.Raw(json.dumps(sent).encode())) == msgspec.convert(sent, Pod)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("count", "annotation_bytes"),
    [pytest.param(8000, 0, id="many"), pytest.param(32, 256 * 1024, id="large")],
)
def test_parts_are_dropped_with_their_pods(count: int, annotation_bytes: int) -> None:
    _, decode_object = decoders(KINDS["Pod"])
    padding = "x" * annotation_bytes
    sent = [replica("a", cpu="1").label(own=f"{i}").annotation({"own": f"{i}{padding}"}).obj() for i in range(count)]
    held = decode_object(msgspec.Raw(json.dumps(sent[0]).encode()))
    tracemalloc.start()
    try:
        for pod in sent:
            decode_object(msgspec.Raw(json.dumps(pod).encode()))
        assert tracemalloc.get_traced_memory()[0] < 3 * 2**20
    finally:
        tracemalloc.stop()
    later = decode_object(msgspec.Raw(json.dumps(sent[0]).encode()))
    assert isinstance(held, Pod) and isinstance(later, Pod)
    assert later.spec.affinity is held.spec.affinity
    assert later.metadata.annotations is held.metadata.annotations
