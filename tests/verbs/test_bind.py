"""bind: each path from assume ends in finish or forget, and a repeated call does no harm."""

from __future__ import annotations

import threading
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.errors import Conflict, ExtenderError, NotFound, OutcomeUnknown, Refused
from extender.framework.profile import Profiles
from extender.framework.status import Refusal, unschedulable
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Binding, Check, Telemetry, always
from extender.table import PodInfo, Table
from extender.verbs.bind import Bind
from extender.verbs.verb import PAUSE_SECONDS, PAUSES, Confirmation
from tests.builders import (
    HOSTNAME,
    NodeBuilder,
    Object,
    expression,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_request,
    make_resource_slice,
    make_result,
    make_storage_class,
    node_term,
    with_allocation,
)
from tests.stock.waiting import wait_until
from tests.verbs.cluster import (
    PROFILES,
    CountedResults,
    FakeBinder,
    answer,
    binding,
    cache_of,
    callers_that_share,
    tell,
)

NODE = make_node("n").allocatable(cpu="2", memory="4Gi", pods="10").obj()
OTHER = make_node("m").allocatable(cpu="2", memory="4Gi", pods="10").obj()
POD = make_pod("p").req(cpu="2").obj()
UID = POD["metadata"]["uid"]


def bind_with(binder: Any, cache: Cache, telemetry: Telemetry | None = None) -> Bind:
    """Returns the verb; where no answer comes its watch delivers nothing more."""
    return Bind(cache, PROFILES, binder, telemetry or Telemetry(), confirmation=Confirmation(cache, lambda _: None))


def state(cache: Cache, uid: str = UID) -> PodState:
    placement = cache.placement(uid)
    return placement.state if placement else PodState.INITIAL


class BrokenOnce(Cache):
    """A cache whose `broken` method raises an unexpected error at its first call."""

    def __init__(self, broken: str) -> None:
        super().__init__(ManualClock(), Telemetry(), 30.0)
        self.broken = broken

    def _break(self, method: str) -> None:
        if self.broken == method:
            self.broken = ""
            raise RuntimeError("a defect")

    def finish_binding(self, uid: str, *, certain: bool = True) -> None:
        self._break("finish_binding")
        super().finish_binding(uid, certain=certain)

    def forget(self, uid: str) -> None:
        self._break("forget")
        super().forget(uid)


@pytest.mark.parametrize(
    ("broken", "outcome"),
    [("finish_binding", None), ("finish_binding", OutcomeUnknown("no answer")), ("forget", Refused("no", 403))],
    ids=["after the bind", "after an unknown outcome", "after a refusal"],
)
def test_a_place_is_left_to_the_watch_after_an_unexpected_error(broken: str, outcome: ExtenderError | None) -> None:
    cache = BrokenOnce(broken)
    tell(cache, [NODE, POD])
    binder = FakeBinder(outcome) if outcome else FakeBinder()
    with pytest.raises(RuntimeError, match="a defect"):
        answer(bind_with(binder, cache), binding(POD, "n"))
    assert state(cache) is PodState.FINISHED
    cache.expire([UID], 1_031.0)
    assert state(cache) is PodState.INITIAL


def test_a_bind_posts_once_and_keeps_the_place() -> None:
    cache, binder = cache_of(NODE, POD), FakeBinder()
    assert answer(bind_with(binder, cache), binding(POD, "n")) == {"Error": ""}
    assert binder.bound == [(UID, "n")]
    assert state(cache) is PodState.FINISHED


class _RefusesAll:
    name = "RefusesAll"

    def prepare(self, pod: PodInfo, table: Table) -> Refusal:
        return unschedulable(self.name, "closed")


def test_bind_checks_by_the_policy_in_force() -> None:
    later = make_pod("later").obj()
    profile = default_profile("default-scheduler")
    profiles, binder = Profiles([profile]), FakeBinder()
    verb = Bind(cache_of(NODE, OTHER, POD, later), profiles, binder, Telemetry())
    assert answer(verb, binding(POD, "n")) == {"Error": ""}
    profiles.replace([replace(profile, predicates=[_RefusesAll()])])
    assert answer(verb, binding(later, "m")) == {"Error": "m no longer fits: closed"}
    assert binder.bound == [(UID, "n")]


class _GoneAtLook(ManualClock):
    """A clock that has the node go from the cache when it is looked at for the nth time."""

    cache: Cache

    def __init__(self, look: int) -> None:
        super().__init__()
        self._left = look

    def monotonic(self) -> float:
        self._left -= 1
        if not self._left:
            self.cache.deleted("Node", msgspec.convert(NODE, Node))
        return super().monotonic()


@pytest.mark.parametrize("left", [(), (make_pod("left").node("n").obj(),)], ids=["empty", "with a pod left"])
def test_a_node_that_goes_while_the_pod_is_checked_is_refused(left: tuple[Object, ...]) -> None:
    recorded = []
    for look in (1, 2):  # as the check begins, and as it has ended
        clock, binder = _GoneAtLook(look), FakeBinder()
        clock.cache = cache_of(NODE, POD, *left, clock=clock)
        recorded.append(answer(bind_with(binder, clock.cache), binding(POD, "n"))["Error"])
        assert (binder.bound, state(clock.cache)) == ([], PodState.INITIAL)
    assert recorded == ["n no longer fits: the node was deleted", "node n is not in the cache"]


@pytest.mark.parametrize("seen", [pytest.param(False, id="before the watch"), pytest.param(True, id="after it")])
def test_a_repeated_bind_is_success_and_takes_no_second_place(seen: bool) -> None:
    cache, binder = cache_of(NODE, OTHER, POD), FakeBinder()
    verb = bind_with(binder, cache)
    answer(verb, binding(POD, "n"))
    if seen:
        tell(cache, [make_pod("p").req(cpu="2").node("n").obj()])
    assert answer(verb, binding(POD, "n")) == {"Error": ""}
    assert answer(verb, binding(POD, "m")) == {"Error": "is already bound to n"}
    assert binder.bound == [(UID, "n"), (UID, "n")]  # of which an API server restored from a copy may have lost one


def test_a_repeated_bind_restarts_the_time_to_live() -> None:
    clock = ManualClock()
    cache = cache_of(NODE, POD, clock=clock)
    verb = bind_with(FakeBinder(), cache)
    answer(verb, binding(POD, "n"))
    clock.advance(60)
    assert list(cache.overdue(clock.monotonic())) == [UID]
    answer(verb, binding(POD, "n"))
    assert cache.overdue(clock.monotonic()) == {}


@pytest.mark.parametrize(
    "error",
    [Conflict('pod p is already assigned to node "m"', 409), NotFound("gone", 404), OutcomeUnknown("timed out")],
    ids=repr,
)
def test_bind_does_not_answer_bound_for_a_pod_that_the_api_server_shows_unbound(error: ExtenderError) -> None:
    cache, binder = cache_of(NODE, make_pod("p").req(cpu="2").node("n").obj()), FakeBinder(error)
    assert answer(bind_with(binder, cache), binding(POD, "n")) == {"Error": str(error)}
    assert state(cache) is PodState.ADDED  # until a list shows it


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(
            Conflict('pod p is already assigned to node "m"', 409), 'already assigned to node "m"', id="conflict"
        ),
        pytest.param(NotFound('pods "p" not found', 404), "not found", id="gone"),
        pytest.param(Refused("denied by policy", 403), "denied by policy", id="refused"),
    ],
)
def test_a_bind_that_the_api_server_refuses_is_forgotten_and_reported(error: ExtenderError, message: str) -> None:
    cache, binder = cache_of(NODE, POD), FakeBinder(error)
    verb = bind_with(binder, cache)
    assert message in answer(verb, binding(POD, "n"))["Error"]
    assert state(cache) is PodState.INITIAL
    assert answer(verb, binding(POD, "n")) == {"Error": ""}


def test_an_unknown_outcome_keeps_the_place_until_the_expiry() -> None:
    clock = ManualClock()
    cache = cache_of(NODE, POD, clock=clock)
    verb = bind_with(FakeBinder(OutcomeUnknown("timed out")), cache)
    assert answer(verb, binding(POD, "n")) == {"Error": "timed out"}
    assert state(cache) is PodState.FINISHED
    rival = make_pod("rival").req(cpu="1").obj()
    tell(cache, [rival])
    assert "Insufficient cpu" in answer(verb, binding(rival, "n"))["Error"]
    clock.advance(31)
    tell(cache, [rival])
    cache.expire(cache.overdue(clock.monotonic()), clock.monotonic())
    assert answer(verb, binding(rival, "n")) == {"Error": ""}


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        pytest.param([make_pod("p").req(cpu="2").node("n").obj()], "", id="bound there"),
        pytest.param([make_pod("p").req(cpu="2").node("m").obj()], "the connection ended", id="bound elsewhere"),
        pytest.param([], "the connection ended", id="gone"),
    ],
)
def test_the_watch_shows_the_outcome_of_a_bind_without_an_answer(recorded: list[Object], expected: str) -> None:
    cache, pauses = cache_of(NODE, OTHER, POD), 0

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            cache.replaced("Pod", [msgspec.convert(pod, Pod) for pod in recorded])

    binder = FakeBinder(OutcomeUnknown("the connection ended"))
    verb = Bind(cache, PROFILES, binder, Telemetry(), confirmation=Confirmation(cache, pause))
    assert answer(verb, binding(POD, "n")) == {"Error": expected}
    assert pauses == 3


def test_the_watch_is_not_waited_for_for_long() -> None:
    cache, waited = cache_of(NODE, POD), list[float]()
    binder = FakeBinder(OutcomeUnknown("the connection ended"))
    verb = Bind(cache, PROFILES, binder, Telemetry(), confirmation=Confirmation(cache, waited.append))
    assert answer(verb, binding(POD, "n")) == {"Error": "the connection ended"}
    assert waited == [PAUSE_SECONDS] * PAUSES


def test_after_an_unknown_outcome_a_repeated_bind_asks_the_api_server_again() -> None:
    cache = cache_of(NODE, OTHER, POD)
    binder = FakeBinder(OutcomeUnknown("timed out"))
    verb = bind_with(binder, cache)
    answer(verb, binding(POD, "n"))
    assert answer(verb, binding(POD, "n")) == {"Error": ""}
    assert binder.bound == [(UID, "n")]
    assert state(cache) is PodState.FINISHED


@pytest.mark.parametrize("node", [pytest.param("n", id="same node"), pytest.param("m", id="another node")])
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(Refused("too many requests", 429), id="throttled"),
        pytest.param(Refused("cannot be reached", 503), id="unreachable"),
        pytest.param(Refused("default backend - 404", 404), id="404 of a gateway"),
        pytest.param(OutcomeUnknown("timed out"), id="unknown again"),
        pytest.param(Conflict("pod p is being deleted, cannot be assigned to a host", 409), id="being deleted"),
    ],
)
def test_an_unknown_outcome_keeps_the_place_until_the_api_server_has_settled_it(
    second: ExtenderError, node: str
) -> None:
    cache = cache_of(NODE, OTHER, POD)
    verb = bind_with(FakeBinder(OutcomeUnknown("timed out"), second), cache)
    answer(verb, binding(POD, "n"))
    assert answer(verb, binding(POD, node)) == {"Error": str(second)}
    rival = make_pod("rival").req(cpu="1").obj()
    tell(cache, [rival])
    assert "Insufficient cpu" in answer(verb, binding(rival, "n"))["Error"]


@pytest.mark.parametrize("error", [Conflict('is already assigned to node "x"', 409), NotFound("gone", 404)])
def test_an_unknown_outcome_that_turns_out_to_be_none_frees_the_place(error: ExtenderError) -> None:
    cache = cache_of(NODE, POD)
    verb = bind_with(FakeBinder(OutcomeUnknown("timed out"), error), cache)
    answer(verb, binding(POD, "n"))
    assert answer(verb, binding(POD, "n")) == {"Error": str(error)}
    assert state(cache) is PodState.INITIAL


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param(make_node("n").allocatable(cpu="1", memory="4Gi", pods="10"), "Insufficient cpu", id="smaller"),
        pytest.param(
            make_node("n").allocatable(cpu="2", memory="4Gi", pods="10").unschedulable(), "unschedulable", id="cordoned"
        ),
        pytest.param(
            make_node("n").allocatable(cpu="2", memory="4Gi", pods="10").taint("a", "b"),
            "untolerated taint",
            id="tainted",
        ),
    ],
)
@pytest.mark.parametrize("node", ["n", "m"])
def test_an_unknown_outcome_is_not_tried_again_once_the_pod_does_not_fit(
    changed: NodeBuilder, reason: str, node: str
) -> None:
    cache, binder = cache_of(NODE, OTHER, POD), FakeBinder(OutcomeUnknown("timed out"))
    verb = bind_with(binder, cache)
    answer(verb, binding(POD, "n"))
    tell(cache, [changed.obj()])
    assert reason in answer(verb, binding(POD, node))["Error"]
    assert binder.bound == []
    assert cache.placement(UID) is not None  # for the first attempt may have succeeded


@pytest.mark.parametrize("node", ["n", "m"])
@pytest.mark.parametrize("checked", [True, False])
def test_an_unknown_outcome_keeps_its_place_on_a_deleted_node_and_is_tried_again_if_the_node_is_back(
    node: str, checked: bool
) -> None:
    cache, binder = cache_of(NODE, OTHER, POD), FakeBinder(OutcomeUnknown("timed out"))
    verb = bind_with(binder, cache)
    answer(verb, binding(POD, "n"))
    cache.deleted("Node", msgspec.convert(NODE, Node))
    decide, request = verb.decide if checked else verb.allow_all, verb.decode(binding(POD, node))
    assert decide(request).error == "may be bound to n, where it no longer fits: the node was deleted"
    assert binder.bound == []
    tell(cache, [NODE])
    assert decide(request).error == ("" if node == "n" else "is already bound to n")
    assert binder.bound == [(UID, "n")]


def test_a_pod_gets_another_node_once_its_unknown_outcome_on_a_deleted_node_is_settled() -> None:
    cache, binder = cache_of(NODE, OTHER, POD), FakeBinder(OutcomeUnknown("timed out"))
    verb = bind_with(binder, cache)
    answer(verb, binding(POD, "n"))
    cache.deleted("Node", msgspec.convert(NODE, Node))
    assert cache.expire([UID], inf) == ["default/p"]
    assert answer(verb, binding(POD, "m")) == {"Error": ""}
    assert binder.bound == [(UID, "m")]


def test_after_an_unknown_outcome_no_second_place_is_taken() -> None:
    cache, binder = cache_of(NODE, OTHER, POD), FakeBinder(OutcomeUnknown("timed out"))
    verb = bind_with(binder, cache)
    answer(verb, binding(POD, "n"))
    assert answer(verb, binding(POD, "m")) == {"Error": "is already bound to n"}
    assert binder.bound == [(UID, "n")]
    placement = cache.placement(UID)
    assert placement is not None
    assert (placement.node_name, placement.certain) == ("n", True)


def test_a_pod_that_no_longer_fits_is_not_posted() -> None:
    cache, binder = cache_of(NODE, POD, make_pod("faster").req(cpu="1").node("n").obj()), FakeBinder()
    error = answer(bind_with(binder, cache), binding(POD, "n"))["Error"]
    assert error == "n no longer fits: Insufficient cpu"
    assert binder.bound == []
    assert state(cache) is PodState.INITIAL


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(binding(POD, "ghost"), "node ghost is not in the cache", id="a node that is gone"),
        pytest.param(
            binding(POD, "n", uid="recreated"), "no pod default/p with UID recreated is known", id="a recreated pod"
        ),
        pytest.param(
            binding(make_pod("never-seen").obj(), "n"), "no pod default/never-seen with UID", id="an unknown pod"
        ),
    ],
)
def test_what_cannot_be_bound_says_why(body: bytes, message: str) -> None:
    binder, counted = FakeBinder(), CountedResults()
    cache = cache_of(NODE, POD)
    verb = bind_with(binder, cache, counted)
    assert message in answer(verb, body)["Error"]
    assert binder.bound == []
    assert counted.results == ["refused"]


@pytest.mark.parametrize(
    "error", [None, NotFound("gone", 404), OutcomeUnknown("timed out")], ids=["bound", "refused", "unknown"]
)
def test_a_pod_that_is_deleted_while_it_is_bound_leaves_nothing_behind(error: ExtenderError | None) -> None:
    cache = cache_of(NODE, POD)

    class Deleting(FakeBinder):
        def bind(self, binding: Binding, check: Check = always) -> None:
            cache.replaced("Pod", [])
            super().bind(binding, check)

    answer(bind_with(Deleting(*([error] if error else [])), cache), binding(POD, "n"))
    assert state(cache) is PodState.INITIAL
    assert cache.size().assumed_pods == 0


def test_the_outcome_of_a_bind_that_meets_a_defect_is_unknown() -> None:
    cache = cache_of(NODE, POD)

    class Broken:
        def bind(self, binding: Binding, check: Check = always) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        answer(bind_with(Broken(), cache), binding(POD, "n"))
    assert cache.size().assumed_pods == 1
    assert answer(bind_with(FakeBinder(), cache), binding(POD, "n")) == {"Error": ""}


def test_calls_for_one_pod_at_the_same_time_share_one_binding() -> None:
    cache, posting, go_on = cache_of(NODE, OTHER, POD), threading.Event(), threading.Event()

    class Slow(FakeBinder):
        def bind(self, binding: Binding, check: Check = always) -> None:
            posting.set()
            assert go_on.wait(60)
            super().bind(binding, check)

    binder, counted = Slow(), CountedResults()
    verb = bind_with(binder, cache, counted)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(answer(verb, binding(POD, "n")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert posting.wait(60)
    assert answer(verb, binding(POD, "m")) == {"Error": "is being bound to n"}
    assert wait_until(lambda: callers_that_share(verb, UID) == 3)
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [{"Error": ""}] * 4
    assert binder.bound == [(UID, "n")]
    assert counted.results == ["refused", "bound"]


def test_an_exempt_pod_is_bound_unjudged_but_counted() -> None:
    cache, binder = cache_of(NODE, make_pod("there").req(cpu="2").node("n").obj(), POD), FakeBinder()
    verb = bind_with(binder, cache)
    assert verb.allow_all(verb.decode(binding(POD, "n"))).error == ""
    assert state(cache) is PodState.FINISHED
    stranger = make_pod("stranger").obj()
    assert verb.allow_all(verb.decode(binding(stranger, "n"))).error == ""
    assert binder.bound == [(UID, "n"), (stranger["metadata"]["uid"], "n")]


GPUS = [
    make_device_class("gpu", 'device.driver == "gpu.example.com"', extended_resource="example.com/gpu"),
    make_resource_slice("n", "gpu.example.com", make_device("gpu-0")),
    make_resource_slice("m", "gpu.example.com", make_device("gpu-0")),
]
ON_N = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}


def made_by_the_scheduler(*, allocated: bool, special: bool) -> Object:
    """A claim as PreBind writes it: for the pod's extended resources, or one that the pod names."""
    claim = make_claim("c", make_request("device", "gpu"))
    if special:
        claim["metadata"] |= {
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": UID, "controller": True}],
        }
    if allocated:
        claim = with_allocation(claim, make_result("n", "gpu-0"), nodeSelector=ON_N)
        claim["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": UID}]
    return claim


@pytest.mark.parametrize("allocated", [True, False], ids=["allocated", "its allocation not yet seen"])
@pytest.mark.parametrize("special", [True, False], ids=["for extended resources", "named by the pod"])
def test_a_claim_that_the_scheduler_has_reserved_is_the_pods_own(special: bool, allocated: bool) -> None:
    pod = make_pod("p").req({"example.com/gpu": "1"}) if special else make_pod("p").resource_claim("c")
    cache = cache_of(NODE, OTHER, pod.obj(), *GPUS, made_by_the_scheduler(allocated=allocated, special=special))
    verb = bind_with(FakeBinder(), cache)
    if allocated:
        assert "no longer fits" in answer(verb, binding(pod.obj(), "m"))["Error"]
    assert answer(verb, binding(pod.obj(), "n")) == {"Error": ""}


LATE = make_storage_class("late")
ONLY_N = node_term(expression(HOSTNAME, "In", "n"))
WANTED = make_pvc("data", storage_class="late")
PLACED = {**WANTED, "metadata": {**WANTED["metadata"], "annotations": {"volume.kubernetes.io/selected-node": "n"}}}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(
            [
                make_pvc("data", storage_class="late", volume="v"),
                make_pv("v", storage_class="late", node_terms=[ONLY_N], claim="default/data"),
            ],
            id="bound",
        ),
        pytest.param(
            [WANTED, make_pv("v", storage_class="late", node_terms=[ONLY_N], claim="default/data")],
            id="the volume is bound to the claim, the claim not yet to the volume",
        ),
        pytest.param([PLACED], id="to be provisioned for the node"),
    ],
)
def test_a_volume_that_the_scheduler_has_chosen_is_the_pods_own(written: list[Object]) -> None:
    nodes = [
        make_node(name).label({HOSTNAME: name}).allocatable(cpu="2", memory="4Gi", pods="10").obj() for name in "nm"
    ]
    pod = make_pod("p").pvc("data").obj()
    verb = bind_with(FakeBinder(), cache_of(*nodes, pod, LATE, *written))
    assert answer(verb, binding(pod, "n")) == {"Error": ""}
