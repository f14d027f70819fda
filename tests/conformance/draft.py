"""A case in the making: what every feature draws from and adds to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.builders import HOSTNAME, REGION, ZONE, NodeBuilder, Object, PodBuilder, expression, make_namespace
from tests.builders import make_node as _make_node
from tests.builders import make_pod as _make_pod

T = TypeVar("T")

NAMESPACES = ("default", "team-a", "team-b")
ZONES = ("z0", "z1", "z2")
APPS = ("web", "db", "cache")
TOPOLOGY_KEYS = (ZONE, ZONE, HOSTNAME, "disktype", "absent")


class Dice:
    """Hypothesis in the words of the features."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def count(self, least: int, most: int) -> int:
        return self._draw(_integers(least, most))

    def chance(self, percent: int) -> bool:
        return self._draw(_integers(0, 99)) >= 100 - percent

    def one(self, *options: T) -> T:
        return options[self.count(0, len(options) - 1)]

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Between `least` and `most` of the options, none twice."""
        left = list(options)
        return [left.pop(self.count(0, len(left) - 1)) for _ in range(self.count(least, min(most, len(left))))]


@lru_cache(maxsize=1024)
def _integers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


@dataclass
class Draft:
    """A cluster and the pod to place in it, while features still change them.

    Attributes:
        pods: those on nodes, and those that wait.
        objects: of all other kinds.
        config: a KubeSchedulerConfiguration, if not the default one.
    """

    nodes: list[NodeBuilder]
    pods: list[PodBuilder]
    target: PodBuilder
    objects: list[Object] = field(default_factory=list)
    config: Object | None = None

    @property
    def node_names(self) -> list[str]:
        return [node.obj()["metadata"]["name"] for node in self.nodes]

    @property
    def everyone(self) -> list[PodBuilder]:
        """All pods, the target last."""
        return [*self.pods, self.target]

    def add(self, *objects: Object) -> None:
        """Adds objects; one of the same kind and name is there already, it stays."""
        known = {_identity(obj) for obj in self.objects}
        self.objects.extend(obj for obj in objects if _identity(obj) not in known)

    def case(self, name: str) -> Object:
        """The case as the oracle reads it."""
        items = [*(built.obj() for built in (*self.nodes, *self.pods)), *self.objects]
        case = {"name": name, "cluster": {"items": items}, "pod": self.target.obj()}
        return case if self.config is None else {**case, "config": self.config}


Feature = Callable[[Dice, Draft], None]


def _identity(obj: Object) -> tuple[Any, ...]:
    return obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]


def draft(dice: Dice) -> Draft:
    """A plain cluster with much room: labelled nodes, small pods, three namespaces."""
    nodes = [_node(dice, f"n{i}") for i in range(dice.count(1, 6))]
    pods = [_pod(dice, f"e{i}").node(f"n{dice.count(0, len(nodes) - 1)}") for i in range(dice.count(0, 2 * len(nodes)))]
    for pod in pods:
        pod.phase("Running").start_time(moment(dice)).priority(0).req(cpu=dice.one("100m", "250m"), memory="64Mi")
        if dice.chance(6):
            pod.deleted()
    target = _pod(dice, "target").priority(0).created(moment(dice))
    if dice.chance(80):
        target.req(cpu=dice.one("100m", "500m", "1"), memory=dice.one("64Mi", "1Gi"))
    namespaces = [make_namespace("default"), make_namespace("team-a", env="prod"), make_namespace("team-b", env="dev")]
    return Draft(nodes, pods, target, namespaces)


def moment(dice: Dice) -> str:
    return f"2026-11-21T{dice.count(1, 9):02}:{dice.count(0, 59):02}:00Z"


def label_selector(dice: Dice) -> Object:
    """A label selector over what pods may be labelled with; now and then the empty one, which selects all."""
    selector: Object = {}
    if dice.chance(65):
        selector["matchLabels"] = {"app": dice.one(*APPS)}
    if dice.chance(35):
        operator = dice.one("In", "NotIn", "Exists", "DoesNotExist")
        values = dice.some((*APPS, "front", "back"), 1, 2) if operator in ("In", "NotIn") else ()
        selector["matchExpressions"] = [expression(dice.one("app", "tier", "absent"), operator, *values)]
    return selector


def _node(dice: Dice, name: str) -> NodeBuilder:
    node = _make_node(name).capacity({"ephemeral-storage": "100Gi"}, cpu=dice.one("16", "32"), memory="64Gi")
    if dice.chance(90):
        node.zone(dice.one(*ZONES))
    if dice.chance(80):
        node.label({REGION: "r0"})
    if dice.chance(70):
        node.label(disktype=dice.one("ssd", "hdd"))
    if dice.chance(60):
        node.label(rank=dice.one("1", "3", "5", "9", "-2", "x", ""))
    return node


def _pod(dice: Dice, name: str) -> PodBuilder:
    pod = _make_pod(name, dice.one("default", *NAMESPACES)).scheduler("default-scheduler")
    if dice.chance(85):
        pod.label(app=dice.one(*APPS))
    if dice.chance(50):
        pod.label(tier=dice.one("front", "back"))
    if dice.chance(30):
        pod.label(hash=dice.one("h1", "h2"))
    return pod
