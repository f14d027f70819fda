"""bind: each call is counted with its result."""

from __future__ import annotations

import pytest

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.errors import Conflict, ExtenderError, NotFound, OutcomeUnknown, Refused
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Binding, Check, Telemetry, always
from extender.verbs.bind import Bind
from extender.verbs.verb import Confirmation
from tests.builders import make_node, make_pod
from tests.verbs.cluster import PROFILES, CountedResults, FakeBinder, answer, binding, cache_of, tell

NODE, OTHER = (make_node(name).allocatable(cpu="2", memory="4Gi", pods="10").obj() for name in ("n", "m"))
POD = make_pod("p").uid("p").req(cpu="2").obj()


def bind_with(binder: FakeBinder, cache: Cache, telemetry: Telemetry) -> Bind:
    return Bind(cache, PROFILES, binder, telemetry, confirmation=Confirmation(cache, lambda _: None))


def test_an_unexpected_error_after_the_bind_leaves_it_certain() -> None:
    cache = cache_of(NODE, POD)
    with pytest.raises(RuntimeError, match="a defect"):
        answer(bind_with(FakeBinder(), cache, CountedResults(RuntimeError("a defect"))), binding(POD, "n"))
    placement = cache.placement("p")
    assert placement is not None
    assert (placement.state, placement.certain) == (PodState.FINISHED, True)


UNKNOWN, DENIED = OutcomeUnknown("no answer"), Refused("denied by policy", 403)
TERMINATES = Conflict("pod p is being deleted, cannot be assigned to a host", 409)
BUSY = make_pod("busy").req(cpu="1").node("n").obj()


@pytest.mark.parametrize(
    ("outcomes", "nodes", "results"),
    [
        pytest.param([None], ["n"], ["bound"], id="bound"),
        pytest.param([DENIED], ["n"], ["refused"], id="refused"),
        pytest.param([UNKNOWN], ["n"], ["unknown"], id="no answer"),
        pytest.param([None, None], ["n", "n"], ["bound", "already_bound"], id="bound before"),
        pytest.param([None, DENIED], ["n", "n"], ["bound", "refused"], id="bound before, and refused now"),
        pytest.param([None, UNKNOWN], ["n", "n"], ["bound", "unknown"], id="bound before, and no answer now"),
        pytest.param([None], ["n", "m"], ["bound", "refused"], id="bound elsewhere before"),
        pytest.param([UNKNOWN, None], ["n", "n"], ["unknown", "bound"], id="no answer before, and bound now"),
        pytest.param([UNKNOWN, None], ["n", "m"], ["unknown", "bound", "refused"], id="the earlier bind is made"),
        pytest.param([UNKNOWN, NotFound("gone", 404)], ["n", "n"], ["unknown", "refused"], id="pod deleted"),
        pytest.param([UNKNOWN, TERMINATES], ["n", "n"], ["unknown", "unknown"], id="pod terminates"),
        pytest.param([UNKNOWN, DENIED], ["n", "n"], ["unknown", "unknown"], id="no answer before, and refused now"),
    ],
)
def test_each_bind_is_counted_with_its_result(
    outcomes: list[ExtenderError | None], nodes: list[str], results: list[str]
) -> None:
    class Answering(FakeBinder):
        def bind(self, binding: Binding, check: Check = always) -> None:
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome

    counted = CountedResults()
    outcomes = list(outcomes)  # the list of the table stays as it is
    verb = bind_with(Answering(), cache_of(NODE, OTHER, POD), counted)
    for node in nodes:
        answer(verb, binding(POD, node))
    assert (counted.results, outcomes) == (results, [])


def test_a_bind_without_room_is_counted_as_unfit() -> None:
    counted = CountedResults()
    answer(bind_with(FakeBinder(), cache_of(NODE, POD, BUSY), counted), binding(POD, "n"))
    assert counted.results == ["unfit"]


def test_an_earlier_bind_that_expires_just_now_is_refused() -> None:
    class Expiring(Cache):
        def finish_binding(self, uid: str, *, certain: bool = True) -> None:
            placement = self.placement(uid)
            if placement is not None and placement.state is PodState.FINISHED:
                self.expire([uid], 1_031.0)
            super().finish_binding(uid, certain=certain)

    cache, counted = Expiring(ManualClock(), Telemetry(), 30.0), CountedResults()
    tell(cache, [NODE, POD])
    verb = bind_with(FakeBinder(UNKNOWN), cache, counted)
    answer(verb, binding(POD, "n"))
    assert answer(verb, binding(POD, "n")) == {"Error": "its earlier bind has just expired; try again"}
    assert counted.results == ["unknown", "refused"]
