"""NodeResourcesFit refuses the same nodes on a table with a history as on a new one."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.model.devices import DeviceClass
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.table import PodInfo, Table
from tests.builders import make_node, make_pod
from tests.builders.devices import make_device_class

GPU = "example.com/gpu"
PROFILE = Profile("p", [NodeResourcesFitFilter()], ())
NODES, STEPS = 12, 150


def info(name: str, **requests: str) -> PodInfo:
    return PodInfo(msgspec.convert(make_pod(name).req(requests).obj(), Pod))


ASKING = [info("a", cpu="1"), info("b", cpu="2", memory="1Gi"), info("c", **{GPU: "1"}), info("d", **{"odd.io/x": "1"})]


def node(name: str, random: Random) -> Node:
    offer = {"cpu": f"{random.randint(1, 5)}", "memory": "4Gi", "pods": f"{random.randint(1, 4)}"}
    gpus = random.choice([{}, {GPU: "0"}, {GPU: "2"}])
    return msgspec.convert(make_node(name).capacity({**offer, **gpus}).obj(), Node)


def refused(pod: PodInfo, table: Table, names: list[str]) -> dict[str, tuple[str, ...]]:
    fit = find_fit(PROFILE, pod, table, np.array([table.nodes.row_of[name] for name in names], np.intp))
    return {table.nodes.names[row]: (*refusal.reasons, refusal.code.name) for row, refusal in fit.refused()}


@pytest.mark.thorough
@pytest.mark.parametrize("backed", [False, True], ids=["device plugins only", "a class stands behind the GPUs"])
@pytest.mark.parametrize("seed", range(2))
def test_a_changed_table_refuses_the_nodes_that_a_new_one_refuses(seed: int, backed: bool) -> None:
    random, table = Random(seed), Table()
    nodes = {f"n{number}": node(f"n{number}", random) for number in range(NODES)}
    placed: dict[str, tuple[PodInfo, str]] = {}
    classes = [msgspec.convert(make_device_class("gpu", extended_resource=GPU), DeviceClass)] if backed else []

    def tell(table: Table) -> Table:
        for device_class in classes:
            table.set_object(DeviceClass.__name__, device_class)
        for described in nodes.values():
            table.set_node(described)
        for pod, name in placed.values():
            table.place(pod, name)
        return table

    tell(table)
    for number in range(STEPS):
        name = random.choice(sorted(nodes))
        match random.randrange(4):
            case 0:
                nodes[name] = node(name, random)
                table.set_node(nodes[name])
            case 1 if placed:
                gone = random.choice(sorted(placed))
                del placed[gone]
                table.take_away(gone)
            case _:
                pod = info(f"p{number}", cpu=f"{random.randint(1, 3)}", **random.choice([{}, {GPU: "1"}]))
                placed[pod.uid] = pod, name
                table.place(pod, name)
        fresh, asked = tell(Table()), random.sample(sorted(nodes), random.randint(1, NODES))
        for pod in random.sample(ASKING, 2):
            assert refused(pod, table, asked) == refused(pod, fresh, asked)
            with table.hypothetically(placed=[(info("guest", cpu="1"), asked[0])], removed=list(placed)[:1]):
                suppositions = refused(pod, table, asked)
            with fresh.hypothetically(placed=[(info("guest", cpu="1"), asked[0])], removed=list(placed)[:1]):
                assert suppositions == refused(pod, fresh, asked)


def test_a_check_counts_a_resource_that_a_new_node_is_the_first_to_offer() -> None:
    table, pod = Table(), info("p", **{GPU: "2"})
    table.set_object(
        DeviceClass.__name__, msgspec.convert(make_device_class("gpu", extended_resource=GPU), DeviceClass)
    )
    table.set_node(msgspec.convert(make_node("devices").obj(), Node))
    assert refused(pod, table, ["devices"]) == {}
    table.set_node(msgspec.convert(make_node("plugin").capacity({GPU: "1"}).obj(), Node))
    assert refused(pod, table, ["devices", "plugin"]) == {
        "plugin": (f"Insufficient {GPU}", "UNSCHEDULABLE_AND_UNRESOLVABLE")
    }


def test_a_check_follows_new_nodes_and_many_changes() -> None:
    table, pod = Table(), ASKING[0]
    for number in range(200):
        table.set_node(msgspec.convert(make_node(f"n{number}").capacity(cpu="1", pods="10").obj(), Node))
        assert refused(pod, table, list(table.nodes.row_of)) == {}
    for number in range(10_000):
        table.place(info(f"p{number}", cpu="1m"), f"n{number % 150}")
    assert set(refused(pod, table, list(table.nodes.row_of))) == {f"n{number}" for number in range(150)}
