"""The waiting pods that an event may help, and the hints that are called to find them."""

from __future__ import annotations

from extender.framework.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, Action, Change, Resource
from extender.framework.queueing_hints import Interest, Interests, QueueingHints, Reads, reads_names
from extender.queue.entries import QueuedPod
from extender.queue.waiting_index import UnschedulablePods
from extender.table import PodInfo
from tests.builders import PodBuilder, make_pod
from tests.queue.queueing import QueueRecorder, info, refused

LEFT = Change(ASSIGNED_POD_DELETE, info(make_pod("b").node("n")))

COLOUR = Reads(lambda pod: pod.pod.labels.get("colour"))
NAME = reads_names(lambda pod: (pod.pod.name,))


class Filed:
    """Waiting pods of two rules whose hints always say yes, and record the pods they were called for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        interests = {
            "ByColour": Interests((Interest(Resource.ASSIGNED_POD, Action.DELETE, self.ask, COLOUR),)),
            "ByName": Interests(
                (Interest(Resource.ASSIGNED_POD, Action.DELETE, self.ask, NAME, lambda change: (change.old.pod.name,)),)
            ),
        }
        self.pods = UnschedulablePods(QueueingHints(interests, QueueRecorder().rule_failed))

    def ask(self, pod: PodInfo, _change: Change) -> bool:
        self.asked.append(pod.pod.name)
        return True

    def add(self, pod: PodBuilder | str, *rules: str, unresolvable: str = "") -> None:
        self.pods.add(QueuedPod(info(pod), timestamp=0.0, rejection=refused(*rules, unresolvable=unresolvable)))

    def helped_by(self, change: Change) -> dict[str, set[str]]:
        return {pod.info.pod.name: set(rules) for pod, rules in self.pods.helped_by(change)}


def test_a_hint_is_called_once_for_equivalent_pods() -> None:
    filed = Filed()
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue"), ("d", "red")):
        filed.add(make_pod(name).label(colour=colour), "ByColour")
    assert set(filed.helped_by(LEFT)) == {"a", "b", "c", "d"}
    assert filed.asked == ["a", "c"]


def test_a_hint_is_called_only_for_pods_that_name_the_object() -> None:
    filed = Filed()
    for name in ("a", "b", "c"):
        filed.add(name, "ByName")
    assert filed.helped_by(LEFT) == {"b": {"ByName"}}
    assert filed.asked == ["b"]


def test_no_hint_is_called_for_an_event_that_no_rule_has_registered_for() -> None:
    filed = Filed()
    filed.add("b", "ByName", "ByColour")
    assert filed.helped_by(Change(NODE_ADD)) == {}
    assert filed.asked == []


def test_no_hint_about_room_is_called_for_unresolvable_pods() -> None:
    filed = Filed()
    filed.add("b", "ByColour", "ByName", unresolvable="ByColour ByName")
    assert filed.helped_by(LEFT) == {}
    assert filed.asked == []


def test_a_pod_is_filed_under_every_rule_and_found_once() -> None:
    filed = Filed()
    filed.add("b", "ByColour", "ByName")
    assert filed.helped_by(LEFT) == {"b": {"ByColour", "ByName"}}


def test_a_pod_that_is_filed_again_leaves_its_old_classes() -> None:
    filed = Filed()
    filed.add(make_pod("b").label(colour="red"), "ByColour", "ByName")
    filed.add(make_pod("b").label(colour="blue"), "ByColour")
    assert filed.helped_by(LEFT) == {"b": {"ByColour"}}
    assert filed.asked == ["b"]
    assert filed.pods.remove(info("b").uid) is not None
    assert filed.helped_by(LEFT) == {}
    assert filed.pods.remove(info("b").uid) is None
    assert len(filed.pods) == 0
