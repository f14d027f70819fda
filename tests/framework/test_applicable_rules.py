"""A rule that is not asked about a pod has nothing to say of it, and replicas are asked about once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from extender.framework.rules import applicable_rules
from extender.policy.providers import DEFAULT_PROVIDER, provider
from extender.table import PodInfo
from extender.table.pods.templates import Templates
from tests.builders import PodBuilder, make_node, make_pod
from tests.framework.cluster import pod_info, table_of

TERM = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
RESTART = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]
VOLUMES = {"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"}

PODS: dict[str, tuple[Callable[[PodBuilder], PodBuilder], set[str]]] = {
    "nothing": (lambda pod: pod, set()),
    "a token": (lambda pod: pod.volume("token", {"projected": {"sources": []}}), set()),
    "a claim": (lambda pod: pod.pvc("claim"), VOLUMES),
    "a disk": (lambda pod: pod.volume("d", {"gcePersistentDisk": {"pdName": "d"}}), VOLUMES),
    "a port": (lambda pod: pod.host_port(80), {"NodePorts"}),
    "a node selector": (lambda pod: pod.node_selector(disk="ssd"), {"NodeAffinity"}),
    "required node affinity": (lambda pod: pod.require_node(TERM), {"NodeAffinity"}),
    "preferred node affinity": (lambda pod: pod.prefer_node(5, TERM), {"NodeAffinity"}),
    "a firm constraint": (lambda pod: pod.spread("zone"), {"PodTopologySpread"}),
    "a device claim": (lambda pod: pod.resource_claim("gpu"), {"DynamicResources"}),
    "an extended resource": (lambda pod: pod.req({"example.com/gpu": "1"}), {"DynamicResources"}),
    "users on the host's network": (
        lambda pod: pod.spec(hostNetwork=True, hostUsers=False),
        {"NodeDeclaredFeatures"},
    ),
    "a restart of all": (
        lambda pod: pod.first_container(restartPolicyRules=RESTART, restartPolicy="Never"),
        {"NodeDeclaredFeatures"},
    ),
}
PROFILE = provider(DEFAULT_PROVIDER)


def made(what: str, name: str = "p") -> PodInfo:
    return pod_info(PODS[what][0](make_pod(name).label(app="a")).obj())


def asked(pod: PodInfo) -> tuple[list[str], list[str]]:
    predicates, priorities = applicable_rules(PROFILE.predicates, pod), applicable_rules(PROFILE.priorities, pod)
    return [each.name for each in predicates], [each.priority.name for each in priorities]


@pytest.mark.parametrize("what", PODS)
def test_who_is_not_asked_has_nothing_to_say(what: str) -> None:
    pod, table = made(what), table_of(make_node("n").label(disk="ssd", zone="a").obj())
    predicates, priorities = asked(pod)
    assert PODS[what][1] <= {*predicates, *priorities}
    silent = [each for each in PROFILE.predicates if each.name not in predicates]
    assert silent
    assert [each.name for each in silent if each.prepare(pod, table) is not None] == []
    mute = [each.priority for each in PROFILE.priorities if each.priority.name not in priorities]
    assert [each.name for each in mute if each.prepare(pod, table, table.nodes.rows) is not None] == []


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(*pair, id=" - ".join(pair)) for pair in product(PODS, repeat=2)]
)
def test_pods_of_one_template_share_the_answer_and_no_others(first: str, second: str) -> None:
    templates = Templates()
    for name, what in (("a", first), ("b", second), ("c", first)):
        alone = made(what, name)
        together = templates.info(alone.pod)
        assert asked(together) == asked(alone)


def test_replicas_are_asked_about_once() -> None:
    templates = Templates()
    one, other = (templates.info(made("a port", name).pod) for name in ("a", "b"))
    assert applicable_rules(PROFILE.predicates, one) is applicable_rules(PROFILE.predicates, other)


def test_the_rules_of_several_profiles_are_told_apart() -> None:
    pod = made("nothing")
    for number in range(20):
        rules = PROFILE.predicates[number % 3 :]
        assert [each.name for each in applicable_rules(rules, pod)] == [
            each.name for each in rules if each.name in asked(made("nothing"))[0]
        ]
