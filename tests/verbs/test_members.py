"""Members of pod groups: filter as in the dry run of group preemption, and bind beside nominated siblings."""

from __future__ import annotations

from extender.model.pod_groups import COSCHEDULING_LABEL
from extender.runtime.ports import Telemetry
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from tests.builders import Object, PodBuilder, make_node, make_pod
from tests.verbs.cluster import PROFILES, FakeBinder, answer, args, binding, cache_of, tell

NODES = [make_node(name).allocatable(cpu="4", memory="16Gi", pods="110").obj() for name in ("n1", "n2")]
NAMES = ["n1", "n2"]


def member(name: str, cpu: str = "3", priority: int = 10) -> PodBuilder:
    return make_pod(name).uid(name).req(cpu=cpu).priority(priority).group("gang")


def lesser(name: str, node: str) -> PodBuilder:
    return make_pod(name).uid(name).req(cpu="3").priority(1).node(node)


def passed(pod: Object, *objects: Object, scheduler_filters: bool = True) -> list[str]:
    verb = Filter(cache_of(*NODES, *objects), PROFILES, Telemetry(), scheduler_filters=scheduler_filters)
    names: list[str] = answer(verb, args(pod, names=NAMES))["NodeNames"]
    return names


FULL = [lesser("a", "n1").obj(), lesser("b", "n2").obj()]


def test_a_member_passes_where_only_pods_of_lower_priority_are_in_the_way() -> None:
    assert passed(member("m").obj(), *FULL) == NAMES


def test_a_pod_without_a_group_is_refused_there() -> None:
    assert passed(make_pod("p").req(cpu="3").priority(10).obj(), *FULL) == []


def test_a_member_is_refused_there_if_the_schedulers_own_filters_are_off() -> None:
    assert passed(member("m").obj(), *FULL, scheduler_filters=False) == []


def test_a_member_gets_only_nodes_with_room_if_there_are_any() -> None:
    assert passed(member("m").obj(), FULL[0]) == ["n2"]


def test_pods_of_the_members_own_priority_stay_in_the_way() -> None:
    assert passed(member("m").obj(), lesser("a", "n1").obj(), lesser("b", "n2").priority(10).obj()) == ["n1"]


def test_a_node_that_no_eviction_helps_stays_refused() -> None:
    verb = Filter(cache_of(*NODES, *FULL), PROFILES, Telemetry())
    result = answer(verb, args(member("m", cpu="8").obj(), names=NAMES))
    assert result["FailedAndUnresolvableNodes"] == dict.fromkeys(NAMES, "Insufficient cpu")


def test_anti_affinity_to_pods_on_several_nodes_does_not_refuse_in_the_dry_run() -> None:
    """The pods of lower priority on all other nodes are gone too, and kube-scheduler has judged such rules itself."""
    nodes = [make_node(name).label(zone="z").allocatable(cpu="4", pods="9").obj() for name in NAMES]
    placed = [lesser("a", "n1").label(app="web").obj(), lesser("b", "n2").label(app="web").obj()]
    pod = member("m", cpu="1").anti_affinity("zone", match_labels={"app": "web"}).obj()
    verb = Filter(cache_of(*nodes, *placed), PROFILES, Telemetry())
    assert answer(verb, args(pod, names=NAMES))["NodeNames"] == NAMES


def bound(pod: Object, *objects: Object) -> str:
    verb = Bind(cache_of(*NODES, pod, *objects), PROFILES, FakeBinder(), Telemetry())
    error: str = answer(verb, binding(pod, "n1"))["Error"]
    return error


def test_siblings_nominated_to_the_node_do_not_count_at_bind() -> None:
    assert bound(member("m").obj(), member("sibling").nominated("n1").obj()) == ""


def test_other_nominated_pods_count_at_bind() -> None:
    others = make_pod("other").uid("other").req(cpu="3").priority(10).nominated("n1").obj()
    assert bound(member("m").obj(), others) == "n1 no longer fits: Insufficient cpu"


def test_siblings_count_at_bind_once_they_are_bound() -> None:
    assert bound(member("m").obj(), member("sibling").node("n1").obj()) == "n1 no longer fits: Insufficient cpu"


def test_siblings_by_coschedulings_label_do_not_count_at_bind() -> None:
    pod, sibling = (make_pod(name).uid(name).req(cpu="3").label({COSCHEDULING_LABEL: "gang"}) for name in ("m", "s"))
    node = make_node("n1").allocatable(cpu="4", memory="4Gi", pods="9").obj()
    cache = cache_of()
    cache.groups.use_coscheduling_label()
    tell(cache, [node, pod.obj(), sibling.nominated("n1").obj()])
    assert answer(Bind(cache, PROFILES, FakeBinder(), Telemetry()), binding(pod.obj(), "n1"))["Error"] == ""
