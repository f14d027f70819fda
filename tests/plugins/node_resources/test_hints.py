"""NodeResourcesFit: the events that may help."""

from __future__ import annotations

import pytest

from extender.framework.cluster_events import Action, Resource
from extender.model.devices import DeviceClass
from tests.builders import NodeBuilder, PodBuilder, make_device_class, make_node, make_pod
from tests.plugins.hint_case import helped, node_change_helps, read
from tests.queue.queueing import info

GPU = "example.com/gpu"


def built(name: str = "n1") -> NodeBuilder:
    return make_node(name)


WANTS_2_CPU = make_pod("p").req(cpu="2")


WANTS_A_GPU = make_pod("p").req({GPU: "1"})
WANTS_2_GPUS = make_pod("p").req({GPU: "2"})
WANTS_1_BYTE_OF_DISK = make_pod("p").req({"ephemeral-storage": "1"})
WANTS_A_DEVICE = make_pod("p").req({"deviceclass.resource.kubernetes.io/gpu": "1"})


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(WANTS_2_CPU, None, built().capacity(cpu="2"), True, id="fits"),
        pytest.param(WANTS_2_CPU, None, built().capacity(cpu="1"), False, id="too small"),
        pytest.param(WANTS_2_CPU, None, built().capacity(pods="0"), False, id="takes no pods"),
        pytest.param(WANTS_2_CPU, built().capacity(cpu="1"), built().capacity(cpu="2"), True, id="grows"),
        pytest.param(WANTS_2_CPU, built(), built().capacity(memory="32Gi"), False, id="grows in what is not wanted"),
        pytest.param(WANTS_2_CPU, built(), built().capacity(pods="200"), True, id="takes more pods"),
        pytest.param(WANTS_2_CPU, built(), built().capacity(cpu="3"), False, id="shrinks"),
        pytest.param(WANTS_A_GPU, None, built(), True, id="a device may stand for the resource"),
        pytest.param(WANTS_A_GPU, None, built().capacity({GPU: "0"}), True, id="where a 0 is reported too"),
        pytest.param(WANTS_2_GPUS, None, built().capacity({GPU: "1"}), False, id="a device plugin has few"),
        pytest.param(WANTS_1_BYTE_OF_DISK, None, built(), False, id="does not offer the resource"),
        pytest.param(WANTS_A_DEVICE, None, built(), True, id="a device of a class that is named"),
        pytest.param(WANTS_A_DEVICE, None, built().capacity(pods="0"), False, id="a device, and takes no pods"),
    ],
)
def test_node_resources_fit(pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
    assert node_change_helps("NodeResourcesFit", pod, old, new, Action.UPDATE_NODE_ALLOCATABLE) is expected


@pytest.mark.parametrize(
    ("left", "free", "expected"),
    [
        pytest.param(make_pod("o").node("n1"), None, True, id="who knows what is free"),
        pytest.param(make_pod("o").nominated("n1"), None, True, id="only nominated"),
        pytest.param(make_pod("o"), None, False, id="held no place"),
        pytest.param(make_pod("o").node("n1"), {"cpu": 2000, "pods": 1}, True, id="enough"),
        pytest.param(make_pod("o").node("n1"), {"cpu": 1999, "pods": 1}, False, id="not enough"),
        pytest.param(make_pod("o").node("n1"), {"cpu": 2000, "pods": 0}, False, id="too many pods"),
    ],
)
def test_a_deleted_pod_wakes_pods_that_fit_into_its_room(
    left: PodBuilder, free: dict[str, int] | None, expected: bool
) -> None:
    room = None if free is None else lambda priority: free
    assert (
        helped("NodeResourcesFit", info(WANTS_2_CPU), Resource.ASSIGNED_POD, Action.DELETE, info(left), room=room)
        is expected
    )


def test_what_is_free_depends_on_the_priority() -> None:
    def room(priority: int) -> dict[str, int]:
        return {"cpu": 4000 if priority > 5 else 0, "pods": 1}

    left, action = info(make_pod("o").node("n1")), Action.DELETE
    for priority, expected in ((9, True), (1, False)):
        pod = info(make_pod("p").req(cpu="2").priority(priority))
        assert helped("NodeResourcesFit", pod, Resource.ASSIGNED_POD, action, left, room=room) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({"cpu": "4"}, {"cpu": "1"}, True, id="wanted too"),
        pytest.param({"memory": "4"}, {"memory": "1"}, False, id="not wanted"),
        pytest.param({"cpu": "4", "memory": "4"}, {"cpu": "4", "memory": "1"}, False, id="wanted, but kept"),
    ],
)
def test_a_scaled_down_pod_wakes_pods_that_fit_into_its_room(
    before: dict[str, str], after: dict[str, str], expected: bool
) -> None:
    old, new = (info(make_pod("o").node("n1").req(requests)) for requests in (before, after))
    action = Action.UPDATE_POD_SCALE_DOWN
    assert helped("NodeResourcesFit", info(WANTS_2_CPU), Resource.ASSIGNED_POD, action, old, new) is expected


PLAIN, NAMED = (
    read(DeviceClass, make_device_class("gpu")),
    read(DeviceClass, make_device_class("gpu", extended_resource=GPU)),
)


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(WANTS_A_GPU, None, NAMED, True, id="comes"),
        pytest.param(WANTS_A_GPU, PLAIN, NAMED, True, id="gets the resource"),
        pytest.param(WANTS_A_GPU, NAMED, NAMED, False, id="has it as before"),
        pytest.param(WANTS_A_GPU, NAMED, PLAIN, False, id="loses it"),
        pytest.param(WANTS_A_GPU, None, PLAIN, False, id="comes without one"),
        pytest.param(WANTS_A_DEVICE, None, PLAIN, True, id="comes by its own name"),
        pytest.param(WANTS_A_DEVICE, PLAIN, NAMED, False, id="had its own name before"),
        pytest.param(WANTS_2_CPU, None, NAMED, False, id="is not wanted"),
        pytest.param(make_pod("p").req({GPU: "0"}), None, NAMED, False, id="none of it is wanted"),
    ],
)
def test_a_device_class_that_provides_the_resource_wakes_the_pod(
    pod: PodBuilder, old: DeviceClass | None, new: DeviceClass, expected: bool
) -> None:
    action = Action.ADD if old is None else Action.UPDATE
    assert helped("NodeResourcesFit", info(pod), Resource.DEVICE_CLASS, action, old, new) is expected
