"""A pod that is placed again in a later version counts as if only that version had ever been placed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from extender.cache.debugger import differences
from extender.model.node import Node
from extender.snapshots.objects import to_pod
from extender.table import PodInfo, Table
from tests.builders import PodBuilder, make_node, make_pod
from tests.table.test_templates import CHANGES

VERSIONS: dict[str, Callable[[PodBuilder], PodBuilder]] = {
    **CHANGES,
    "its start": lambda pod: pod.start_time("2026-01-01T00:00:00Z"),
    "its deletion": lambda pod: pod.deleted(),
    "a shared disk": lambda pod: pod.volume("d", {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}),
}


def version(change: str) -> PodInfo:
    return PodInfo(to_pod(VERSIONS[change](make_pod("p").label(app="a").req(cpu="1", memory="1Gi")).obj()))


def table_with(*versions: PodInfo, node: str = "n1") -> Table:
    """Places the last version on `node`, and all earlier ones on n1."""
    table = Table()
    for name in ("n1", "n2"):
        table.set_node(msgspec.convert(make_node(name).obj(), Node))
    for info in versions[:-1]:
        table.place(info, "n1")
    for info in versions[-1:]:
        table.place(info, node)
    return table


@pytest.mark.parametrize("second", VERSIONS)
def test_the_last_version_counts(second: str) -> None:
    now = version(second)
    for node in ("n1", "n2"):
        alone, empty = table_with(now, node=node), table_with(node=node)
        for first in VERSIONS:
            placed = table_with(version(first), now, node=node)
            assert not list(differences(placed, alone)), first
            placed.take_away(now.uid)
            assert not list(differences(placed, empty)), first


def test_a_version_that_counts_the_same_does_not_change_the_node() -> None:
    table = table_with(version("nothing"))
    moment = table.journal.now
    table.place(version("its start"), "n1")
    table.place(version("labels"), "n1")
    assert table.journal.now == moment
    table.place(version("requests"), "n1")
    assert table.journal.now > moment
