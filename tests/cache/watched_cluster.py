"""A cluster that changes at random, and whose watches tell a cache of it later: for tests of the comparer."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from random import Random

import msgspec

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from tests import builders
from tests.builders import ZONE, make_csi_node, make_namespace, make_node, make_pod, make_pv
from tests.builders import Object as Json

KINDS_HERE = ("Node", "Pod", "Namespace", "PersistentVolume", "CSINode")
ZONES = ("a", "b")
Key = tuple[str, str]


class Alarms(Telemetry):
    """Telemetry that keeps what the comparer reports."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    def cache_differed(self, kind: str, key: str, how: str) -> None:
        self.recorded.append((kind, key, how))


class WatchedCluster:
    """The truth, with versions; a ports.Lister. Events wait, kind by kind in their order, until they are delivered."""

    def __init__(self, random: Random) -> None:
        self.alarms = Alarms()
        self.cache = Cache(ManualClock(), self.alarms)
        self.objects: dict[Key, Object] = {}
        self.bound: dict[str, str] = {}
        self._random, self._version, self._made = random, 0, 0
        self._events: defaultdict[str, deque[tuple[int, Object | None, Object]]] = defaultdict(deque)
        self._told = dict.fromkeys(KINDS_HERE, 0)
        self.relisted: list[str] = []
        self._binding: set[str] = set()
        for i in range(3):
            self.put(
                "Node", make_node(f"n{i}").zone(ZONES[i % 2]).taint("dedicated").image("app:1", size_bytes=9).obj()
            )
        for obj in (make_namespace("default"), make_pv("v"), make_csi_node("n0", {"csi.example.com": 5})):
            self.put(obj["kind"], obj)
        self.put("Pod", self._pod("fixed").node("n0").obj())
        self.put("Pod", self._pod("waits").nominated("n1").obj())
        self.deliver_all()

    # ---- what happens

    def put(self, kind: str, obj: Json) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        made = msgspec.convert(obj, KINDS[kind].type)
        self.objects[kind, made.key] = made
        self._events[kind].append((self._version, made, made))

    def remove(self, kind: str, key: str) -> None:
        gone = self.objects.pop((kind, key))
        self._version += 1
        self._events[kind].append((self._version, None, gone))

    def deliver(self, kind: str) -> None:
        """The watch of the kind delivers the next event, if there is one."""
        if self._events[kind]:
            version, obj, gone = self._events[kind].popleft()
            self.cache.deleted(kind, gone) if obj is None else self.cache.changed(kind, obj)
            self._told[kind] = version

    def deliver_all(self) -> None:
        for kind in KINDS_HERE:
            while self._events[kind]:
                self.deliver(kind)

    def live(self, moments: int) -> None:
        """Lets things happen at random: to the cluster, to the watches, and in the cache."""
        for _ in range(moments):
            self._random.choice((self._grow, self._shrink, self._relabel, self._assume, self._end, self._watch))()

    def _watch(self) -> None:
        self.deliver(self._random.choice(KINDS_HERE))

    def _grow(self) -> None:
        self._made += 1
        if self._random.random() < 0.3:
            self.put("Node", make_node(f"m{self._made}").zone(self._random.choice(ZONES)).obj())
        else:
            pod = self._pod(f"p{self._made}")
            self.put(
                "Pod", (pod.node(self._random.choice(self._nodes())) if self._random.random() < 0.5 else pod).obj()
            )

    def _shrink(self) -> None:
        key = self._random.choice([*self.objects])
        if key[1] not in ("n0", "n1", "n2", "default/fixed", "default/waits", "default", "v"):
            self.remove(*key)

    def _relabel(self) -> None:
        name = self._random.choice(self._nodes())
        self.put("Node", make_node(name).zone(self._random.choice(ZONES)).taint("dedicated").obj())

    def _assume(self) -> None:
        known = [pod for pod in self._pods() if self.cache.find_pod(pod.uid, pod.key) and not pod.node_name]
        pods = [pod for pod in known if not self.cache.placement(pod.uid) and pod.name != "waits"]
        if pods and not self.cache.assume(PodInfo(pod := self._random.choice(pods)), "n0", lambda _: None):
            self._binding.add(pod.uid)

    def _end(self) -> None:
        """The API server answers a bind: done, or refused."""
        uid = self._binding.pop() if self._binding else ""
        pod = next((pod for pod in self._pods() if pod.uid == uid), None)
        placement = self.cache.placement(uid)
        if placement is None or placement.state is not PodState.ASSUMED:
            return
        if pod is None or self._random.random() < 0.3:
            self.cache.forget(uid)
        else:
            self.put("Pod", self._pod(pod.name).node("n0").obj())
            self.cache.finish_binding(uid)

    def _pods(self) -> list[Pod]:
        return [obj for obj in self.objects.values() if isinstance(obj, Pod)]

    def _nodes(self) -> list[str]:
        return [key for kind, key in self.objects if kind == "Node"]

    def _pod(self, name: str) -> builders.PodBuilder:
        pod = make_pod(name).req(cpu="1").label(app="web").host_port(80)
        return pod.anti_affinity(ZONE, labelSelector={"matchLabels": {"app": "web"}})

    # ---- ports.Lister

    def kinds(self) -> Sequence[str]:
        return KINDS_HERE

    def list(self, kind: str) -> tuple[str, Sequence[Object]]:
        listed = str(self._version), [obj for (its_kind, _), obj in self.objects.items() if its_kind == kind]
        self.live(self._random.randrange(4))  # while the answer is on its way
        return listed

    def relist(self, kind: str, why: str) -> None:
        self.relisted.append(kind)

    def has_delivered(self, kind: str, version: str) -> bool:
        return self._told[kind] >= int(version)
