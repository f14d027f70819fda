"""Objects of whole kinds keep all of their JSON, from a list and from a watch."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from extender.cluster.watch.api_objects import decoders
from extender.model.extender_config import document_of
from extender.model.kinds import KINDS
from extender.model.node import Node
from extender.model.pod import Pod
from tests.builders import Object, make_node, make_pod

MANAGED = {"managedFields": [{"manager": "somebody"}]}


def pod() -> Object:
    built = make_pod("p").first_container(env=[{"name": "A", "value": "ö"}]).obj()
    built["metadata"] |= MANAGED
    return built


def expected(obj: Object, *, managed: bool) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if managed or key != "managedFields"}
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return {**rest, "metadata": metadata}


def whole(obj: Object) -> tuple[Object, Object]:
    """Returns the documents of the object from a list and from a watch."""
    decode_page, decode_object = decoders(replace(KINDS[obj["kind"]], whole=True))
    body = json.dumps(obj).encode()
    page = decode_page(b'{"metadata":{"resourceVersion":"7"},"items":[' + body + b"]}")
    assert page.items
    assert page.metadata.resource_version == "7"
    listed, watched = page.items[0], decode_object(msgspec.Raw(body))
    assert isinstance(listed, KINDS[obj["kind"]].type)
    return json.loads(document_of(listed)), json.loads(document_of(watched))


def test_a_whole_pod_has_no_managed_fields() -> None:
    assert whole(pod()) == (expected(pod(), managed=False),) * 2


def test_a_whole_node_keeps_its_managed_fields() -> None:
    node = make_node("n").obj()
    node["metadata"] |= MANAGED
    assert whole(node) == (expected(node, managed=True),) * 2


def test_a_placed_pod_keeps_its_document() -> None:
    placed = decoders(replace(KINDS["Pod"], whole=True))[1](msgspec.Raw(json.dumps(pod()).encode()))
    assert isinstance(placed, Pod)
    assert json.loads(document_of(placed.placed_on("n")))["spec"] == pod()["spec"]


def test_without_whole_kinds_unknown_fields_are_dropped() -> None:
    known = decoders(KINDS["Node"])[1](msgspec.Raw(json.dumps(make_node("n").obj()).encode()))
    assert type(known) is Node
    assert json.loads(document_of(known))["metadata"]["name"] == "n"


@pytest.mark.parametrize("body", [b"[]", b'{"items":[1]}', b'{"items":[{"metadata":1}]}', b"{"])
def test_an_unreadable_page_or_object_is_an_error(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decoders(replace(KINDS["Pod"], whole=True))[0](body)
