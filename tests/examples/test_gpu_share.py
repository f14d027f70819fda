"""examples/rules/gpu_share.py: GPUs are shared by memory, and no GPU is ever given away twice."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from examples.rules.gpu_share import COUNT, DEVICE, INDEX, MEMORY, NO_GPU, POD, has_gpu, pick_gpu
from extender.app.serve import assume_unsettled
from extender.cache.cache import Cache
from extender.errors import OutcomeUnknown, Refused
from extender.framework.profile import Profile, Profiles
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.plugins.users.rule_calls import OfflineHost
from extender.runtime.ports import Telemetry
from extender.runtime.unsettled import UnsettledWrites
from extender.table.features import FeatureGates
from extender.verbs.bind import Bind
from tests.builders import NodeBuilder, Object, PodBuilder, make_node, make_pod, make_pod_group
from tests.scheduler.world import NAME, World
from tests.verbs.cluster import FakeBinder, answer, binding, cache_of, tell


def sharing() -> Profile:
    default = default_profile()
    return dataclasses.replace(
        default,
        predicates=[*default.predicates, has_gpu.rule("has_gpu", {}, OfflineHost())],
        bind=[pick_gpu.rule("pick_gpu", {}, OfflineHost())],
    )


def gpu_node(name: str = "n", gpus: int = 1, memory: int = 16) -> NodeBuilder:
    resources = {"cpu": "64", "memory": "64Gi", "pods": "50", MEMORY: str(gpus * memory), COUNT: str(gpus)}
    return make_node(name).capacity(resources).allocatable(resources)


def sharer(name: str, memory: int) -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).limit({MEMORY: str(memory)})


def world_of(*built: Any, **options: Any) -> World:
    return World(*built, profile=sharing(), **options)


def gpu_of(pod: Pod) -> str | None:
    return pod.annotations.get(INDEX) if pod.node_name else None


def gpus(world: World) -> dict[str, str | None]:
    return {pod.name: gpu_of(pod) for pod in world.objects.values() if isinstance(pod, Pod)}


def test_sharers_fill_one_gpu_before_the_next() -> None:
    world = world_of(gpu_node(gpus=2), sharer("a", 8), sharer("b", 8), sharer("c", 8))
    world.settle()
    assert gpus(world) == {"a": "0", "b": "0", "c": "1"}
    assert {key: world.pod("a").annotations[key] for key in (POD, DEVICE)} == {POD: "8", DEVICE: "16"}


def test_a_pod_that_fits_on_no_single_gpu_is_refused() -> None:
    world = world_of(gpu_node(gpus=2), sharer("a", 9), sharer("b", 9), sharer("c", 9))
    world.settle()
    assert gpus(world) == {"a": "0", "b": "1", "c": None}
    assert NO_GPU in world.conditions[-1][2]


def test_a_pod_with_several_containers_gets_one_gpu_for_all() -> None:
    containers = [
        {"name": name, "resources": {"limits": {MEMORY: amount}}} for name, amount in (("x", "8"), ("y", "4"))
    ]
    pod = sharer("a", 8).spec(containers=containers)
    world = world_of(gpu_node(gpus=2), pod, sharer("b", 5))
    world.settle()
    assert gpus(world) == {"a": "0", "b": "1"}
    assert world.pod("a").annotations[POD] == "12"


class WebhookBinder(FakeBinder):
    """Remembers the annotations of each Binding."""

    def __init__(self, *errors: Any) -> None:
        super().__init__(*errors)
        self.annotations: list[dict[str, str]] = []

    def bind(self, binding: Any, *check: Any) -> None:
        self.annotations.append(dict(binding.annotations))
        super().bind(binding, *check)


def webhook(*objects: Object, binder: FakeBinder | None = None) -> tuple[Cache, WebhookBinder, Bind]:
    cache, binder = cache_of(*objects), binder or WebhookBinder()
    return cache, binder, Bind(cache, Profiles([sharing()]), binder, Telemetry())  # type: ignore[return-value]


def test_of_two_binds_for_the_last_share_one_is_refused() -> None:
    a, b = sharer("a", 16).obj(), sharer("b", 16).obj()
    _, binder, verb = webhook(gpu_node().obj(), a, b)
    second: list[Any] = []
    binder.during = lambda: second.append(answer(verb, binding(b, "n")))  # while the Binding of a is on its way
    assert answer(verb, binding(a, "n"))["Error"] == ""
    assert NO_GPU in second[0]["Error"]
    assert (binder.bound, [each[INDEX] for each in binder.annotations]) == ([("a", "n")], ["0"])


def test_of_two_binds_at_once_each_gets_its_own_gpu() -> None:
    a, b = sharer("a", 16).obj(), sharer("b", 16).obj()
    _, binder, verb = webhook(gpu_node(gpus=2).obj(), a, b)
    binder.during = lambda: answer(verb, binding(b, "n"))
    answer(verb, binding(a, "n"))
    assert sorted(each[INDEX] for each in binder.annotations) == ["0", "1"]


def test_a_failed_bind_gives_the_share_back() -> None:
    a, b = sharer("a", 16).obj(), sharer("b", 16).obj()
    cache, binder, verb = webhook(gpu_node().obj(), a, b, binder=WebhookBinder(Refused("etcd is full", 500)))
    assert answer(verb, binding(a, "n"))["Error"] == "etcd is full"
    assert answer(verb, binding(b, "n"))["Error"] == ""
    assert binder.bound == [("b", "n")]
    found = cache.find_pod("a", "default/a")
    assert found is not None
    assert INDEX not in found.pod.annotations


def test_a_failed_bind_of_the_loop_gives_the_share_back() -> None:
    world = world_of(gpu_node(), sharer("a", 16), sharer("b", 16))
    world.faults = [Refused("etcd is full", 500)]
    world.settle()
    assert gpus(world) == {"a": None, "b": "0"}
    assert INDEX not in world.pod("a").annotations


def test_an_expired_assumption_gives_the_share_back() -> None:
    world = world_of(gpu_node(), sharer("a", 16), sharer("b", 16))
    world.faults = [OutcomeUnknown("connection reset")]
    world.settle()
    assert gpus(world) == {"a": None, "b": None}  # a may be bound, so its share is not given away
    world.pass_time(100)
    assert Counter(gpus(world).values()) == {"0": 1, None: 1}


def test_a_bind_without_an_answer_is_repeated_with_the_same_gpu() -> None:
    a = sharer("a", 4).obj()
    cache, binder, verb = webhook(gpu_node(gpus=2).obj(), a, binder=WebhookBinder(OutcomeUnknown("reset")))
    verb._confirmation.wait = lambda *_: False  # type: ignore[method-assign]  # the watch shows nothing
    answer(verb, binding(a, "n"))
    tell(cache, [sharer("a", 4).label(changed="yes").obj()])  # the watch may still show the pod without its GPU
    assert answer(verb, binding(a, "n"))["Error"] == ""
    assert binder.annotations[0] == binder.annotations[1]
    assert binder.annotations[0][INDEX] == "0"


def test_after_a_restart_the_annotations_are_the_books() -> None:
    before = world_of(gpu_node(gpus=2), sharer("a", 10), sharer("b", 10))
    before.settle()
    after = world_of()
    for obj in before.objects.values():
        after.put_object(obj)
    after.put(sharer("c", 6))
    after.put(sharer("d", 7))
    after.settle()
    assert gpus(after) == {"a": "0", "b": "1", "c": "0", "d": None}


def test_a_bind_that_a_killed_worker_has_left_keeps_its_gpu() -> None:
    writes, a, b = UnsettledWrites(30.0), sharer("a", 10).obj(), sharer("b", 10).obj()
    objects = gpu_node(gpus=2).obj(), a, b
    _, _, verb = webhook(*objects, binder=_Recorded(writes))
    with pytest.raises(KeyboardInterrupt):
        answer(verb, binding(a, "n"))
    cache, binder, verb = webhook(*objects)  # the next worker
    assume_unsettled(cache, writes.take_over())
    assert answer(verb, binding(b, "n"))["Error"] == ""
    assert binder.annotations[0][INDEX] == "1"


class _Recorded(WebhookBinder):
    def __init__(self, writes: UnsettledWrites) -> None:
        super().__init__()
        self._writes = writes

    def bind(self, binding: Any, *check: Any) -> None:
        with self._writes.noted(binding):
            raise KeyboardInterrupt


def test_a_repeated_bind_after_a_restart_writes_no_second_choice() -> None:
    bound = sharer("a", 4).node("n").annotation({INDEX: "1", POD: "4"}).obj()
    _, binder, verb = webhook(gpu_node(gpus=2).obj(), bound)
    assert answer(verb, binding(bound, "n"))["Error"] == ""
    assert binder.annotations == []


def test_preemption_of_a_sharer_frees_its_gpu() -> None:
    world = world_of(
        gpu_node(gpus=2),
        sharer("a", 10).node("n").annotation({INDEX: "0"}).priority(1),
        sharer("b", 10).node("n").annotation({INDEX: "1"}).priority(2),
        sharer("p", 12).priority(10),
    )
    world.settle()
    assert [name for name, reason, _ in world.events if reason == "Preempted"] == ["a"]
    world.delete("Pod", "default/a")
    world.pass_time(3)
    assert gpus(world) == {"b": "1", "p": "0"}


@pytest.mark.parametrize("changed", ["", "7", "none"])
def test_a_pod_whose_annotation_another_writer_changed_counts_on_each_gpu(changed: str) -> None:
    world = world_of(gpu_node(gpus=2), sharer("a", 10).node("n").annotation({INDEX: changed}), sharer("b", 7))
    world.settle()
    assert gpus(world)["b"] is None
    world.put(sharer("a", 10).node("n").annotation({INDEX: "1"}))
    world.pass_time(20)
    assert gpus(world) == {"a": "1", "b": "0"}


def test_members_of_a_gang_see_what_was_chosen_for_those_before() -> None:
    world = world_of(
        make_pod_group("gang", min_count=2),
        gpu_node(gpus=2),
        *(sharer(name, 16).group("gang") for name in "ab"),
        features=FeatureGates(generic_workload=True),
    )
    world.settle()
    assert gpus(world) == {"a": "0", "b": "1"}


class Sharing(RuleBasedStateMachine):
    """Binds that succeed, fail, get lost or get no answer, deletions and restarts: no GPU is given away twice."""

    def __init__(self) -> None:
        super().__init__()
        self.world = world_of(gpu_node("n1", gpus=2), gpu_node("n2"))
        self.names = 0

    @rule(memory=st.integers(1, 16), priority=st.integers(0, 2))
    def create(self, memory: int, priority: int) -> None:
        self.names += 1
        self.world.put(sharer(f"p{self.names}", memory).priority(priority))

    @rule(fault=st.sampled_from([Refused("full", 500), OutcomeUnknown("reset")]))
    def fail(self, fault: Exception) -> None:
        self.world.faults.append(fault)

    @rule(seconds=st.sampled_from([1, 5, 40]))
    def go_on(self, seconds: int) -> None:
        self.world.settle()
        self.world.pass_time(seconds)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pods = [key for kind, key in self.world.objects if kind == "Pod"]
        if pods:
            self.world.delete("Pod", data.draw(st.sampled_from(pods)))

    @rule()
    def restart(self) -> None:
        objects = list(self.world.objects.values())
        self.world = world_of()
        for obj in objects:
            self.world.put_object(obj)

    @invariant()
    def no_gpu_is_overbooked(self) -> None:
        used: Counter[tuple[str, str | None]] = Counter()
        for pod in self.world.objects.values():
            if isinstance(pod, Pod) and pod.node_name:
                assert gpu_of(pod) is not None
                used[pod.node_name, gpu_of(pod)] += int(pod.annotations[POD])
        assert all(amount <= 16 for amount in used.values()), used


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=15, stateful_step_count=20)
