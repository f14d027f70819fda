"""Whatever happens to a cluster, no pod waits for an event that could be placed: it would wait for five minutes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen
from extender.framework.profile import Profile
from extender.queue.entries import Tier
from tests.builders import HOSTNAME, ZONE, Object, expression, make_namespace, make_node, make_pod, node_term
from tests.scheduler.world import NAME, World

pytestmark = pytest.mark.thorough

APPS, ZONES, POOLS, KEYS = ("a", "b"), ("z1", "z2"), ("x", "y"), (HOSTNAME, ZONE, "rack")
EVENTS, MOST_WAITING, MOST_NODES = 50, 4, 5
FOUND = (31, 51, 145, 151, 160, 162)  # seeds by which pods waited that hints of InterPodAffinity now find
OLD_SECONDS = 15  # longer than any backoff, and far from five minutes


class Cluster:
    """One seed's: what happens to it, in which order."""

    def __init__(self, seed: int) -> None:
        self.random, self.world, self._made = Random(seed), World(seed=seed), 0
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        for _ in range(3):
            self.node_comes()

    def happen(self) -> str:
        """Returns the name of what happens."""
        events: list[Callable[[], object]] = [
            self.node_changes,
            self.pod_leaves,
            self.pod_changes,
            self.namespace_changes,
        ]
        events += [self.node_comes] * (len(self.nodes) < MOST_NODES) + [self.node_goes] * (len(self.nodes) > 2)
        events += [self.pod_comes] * 3 * (len(self.world.queue.pods()[Tier.UNSCHEDULABLE]) < MOST_WAITING)
        event = self.random.choice(events)
        event()
        self.world.pass_time(OLD_SECONDS)
        return event.__name__

    def node_comes(self) -> None:
        name = self._name("n")
        built = make_node(name).label({HOSTNAME: name, ZONE: self._one(ZONES), "pool": self._one(POOLS)})
        self.nodes[name] = built.allocatable(cpu=self._one("124"), memory="8Gi", pods="9").obj()
        self.world.put(self.nodes[name])

    def node_changes(self) -> None:
        node = self.nodes[self._one(list(self.nodes))]
        spec, labels = node["spec"], node["metadata"]["labels"]
        key = self._one((ZONE, "rack", "pool", "cordon", "taint", "cpu"))
        if key == "cordon":
            spec["unschedulable"] = not spec.get("unschedulable", False)
        elif key == "taint":
            spec["taints"] = [] if spec.get("taints") else [{"key": "t", "effect": "NoSchedule"}]
        elif key == "cpu":
            node["status"]["allocatable"]["cpu"] = self._one("124")
        elif key in labels and self.random.random() < 0.4:
            del labels[key]
        else:
            labels[key] = self._one({ZONE: ZONES, "rack": ("r1", "r2"), "pool": POOLS}[key])
        self.world.put(node)

    def node_goes(self) -> None:
        name = self._one(list(self.nodes))
        del self.nodes[name]
        self.world.delete("Node", name)

    def pod_comes(self) -> None:
        chance, name = self.random.random, self._name("p")
        pod = make_pod(name).uid(name).scheduler(NAME).preemption_policy("Never").label(app=self._one(APPS))
        pod = pod.req(cpu=self._one(("100m", "500m", "1")))
        if chance() < 0.3:
            pod = pod.require_node(node_term(expression("pool", self._one(("In", "NotIn")), self._one(POOLS))))
        if chance() < 0.3:
            pod = pod.toleration("t")
        if chance() < 0.2:
            pod = pod.host_port(80)
        if chance() < 0.6:
            repels = self._one((pod.affinity, pod.affinity, pod.anti_affinity))
            anywhere: Object = self._one(({}, {"namespaceSelector": {"matchLabels": {"team": "1"}}}))
            pod = repels(self._one(KEYS), labels={"app": self._one(APPS)}, **anywhere)
        if chance() < 0.4:
            pod = pod.spread(self._one(KEYS), labels={"app": self._one(APPS)}, **self._one(({}, {"minDomains": 2})))
        self.pods[name] = pod.obj()
        self.world.put(self.pods[name])

    def pod_leaves(self) -> None:
        if placed := self._placed():
            self.world.delete("Pod", f"default/{self._one(placed)}")

    def pod_changes(self) -> None:
        """Another label, or less to ask for."""
        if placed := self._placed():
            pod = self.pods[name := self._one(placed)]
            pod["spec"]["nodeName"] = self.world.node_of(name)
            if self.random.random() < 0.5:
                pod["metadata"]["labels"]["app"] = self._one((*APPS, "c"))
            else:
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "50m"
            self.world.put(pod)

    def namespace_changes(self) -> None:
        self.world.put(make_namespace("default", team=self._one("12")))

    def wait_in_vain(self, profile: Profile) -> list[str]:
        """Returns the pods that wait for an event, and fit as it is."""
        with self.world.cache.snapshot("test") as table:
            cycle = SchedulingCycle(profile, Random(1))
            waiting = self.world.queue.pods()[Tier.UNSCHEDULABLE]
            return [info.pod.name for info in waiting if isinstance(cycle.schedule_pod(info, table), Chosen)]

    def _placed(self) -> list[str]:
        return [
            name for name in self.pods if ("Pod", f"default/{name}") in self.world.objects and self.world.node_of(name)
        ]

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def _one(self, of: Any) -> Any:
        return self.random.choice(of)


@pytest.mark.parametrize("seed", (*range(10), *FOUND))
def test_no_pod_waits_that_could_be_placed(seed: int) -> None:
    cluster = Cluster(seed)
    profile = cluster.world.cycles[NAME].profile
    for number in range(EVENTS):
        event = cluster.happen()
        assert cluster.wait_in_vain(profile) == [], f"event {number}: {event}"
