"""Namespaces are found by selector, services by pod; both follow changes of the objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.model.kinds import KINDS
from extender.model.selectors import EVERYTHING, NOTHING, Requirement, Selector
from extender.table import Table
from extender.table.podinfo import Group
from tests.builders import make_namespace, make_service

UNLABELLED = Selector((Requirement("env", "DoesNotExist"),))


def put(table: Table, *objects: dict[str, Any]) -> None:
    for obj in objects:
        table.set_object(obj["kind"], msgspec.convert(obj, KINDS[obj["kind"]].type))


def test_namespaces_are_selected_by_their_current_labels() -> None:
    table = Table()
    assert table.namespaces.labels("prod") == frozenset()
    put(table, make_namespace("prod", env="prod"), make_namespace("plain"))
    assert table.namespaces.labels("prod") == {("env", "prod")}
    assert table.namespaces.matching(UNLABELLED) == {"plain"}
    put(table, make_namespace("prod"))
    assert table.namespaces.labels("prod") == frozenset()
    assert table.namespaces.matching(UNLABELLED) == {"plain", "prod"}
    table.remove_object("Namespace", "plain")
    assert table.namespaces.matching(EVERYTHING) == {"prod"}
    assert table.namespaces.matching(NOTHING) == frozenset()


@pytest.mark.parametrize(
    ("group", "selecting"),
    [
        pytest.param(
            Group("default", frozenset({("app", "web"), ("tier", "front")})), {"web", "front", "all"}, id="many"
        ),
        pytest.param(Group("default", frozenset({("app", "web")})), {"web", "all"}, id="all labels are wanted"),
        pytest.param(Group("default", frozenset()), {"all"}, id="an empty selector selects everything"),
        pytest.param(Group("other", frozenset({("app", "web")})), set(), id="another namespace"),
    ],
)
def test_services_select_pods_of_their_namespace(group: Group, selecting: set[str]) -> None:
    table = Table()
    put(table, make_service("web", {"app": "web"}), make_service("front", {"app": "web", "tier": "front"}))
    put(table, make_service("all", {}), make_service("none", {}) | {"spec": {}})
    assert {service.name for service in table.services.selecting(group)} == selecting


def test_a_service_that_changes_or_is_deleted_selects_other_pods() -> None:
    table = Table()
    web, db = Group("default", frozenset({("app", "web")})), Group("default", frozenset({("app", "db")}))
    put(table, make_service("s", {"app": "web"}))
    put(table, make_service("s", {"app": "db"}))
    assert table.services.selecting(web) == []
    assert [service.name for service in table.services.selecting(db)] == ["s"]
    table.remove_object("Service", "default/s")
    assert table.services.selecting(db) == []
