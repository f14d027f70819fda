"""A cluster as the engine sees it: one table, the pods by name, the profiles; what every offline answer stands on."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from extender.errors import (
    ExtenderError,
    MalformedCluster,
    MalformedQuantity,
    RuleFailed,
    RuleUnanswered,
    UnknownNode,
    UnknownPod,
)
from extender.framework.find_fit import Fit, find_fit
from extender.framework.profile import Profile, Profiles
from extender.framework.score import score
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.offline.decision import Decision
from extender.offline.manifests.admission import Admitted, admit
from extender.offline.manifests.objects import to_pod
from extender.offline.manifests.templates import workload_of
from extender.plugins.registry import default_profile
from extender.preemption import preempt
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.runtime.near_names import did_you_mean
from extender.table import PodInfo, Table
from extender.table.labels import Rows

_MOST_COMPARED = 5000  # names of nodes with one that is none of them


class DecisionLimit:
    """The time that each decision may take; as long as a rule has not answered, no rule is asked.

    Attributes:
        time: for one decision.
        late: the call that was given up last; its rule may look at its table still.
    """

    def __init__(self, time: TimeLimit = NO_LIMIT) -> None:
        self.time = time
        self.late: Future[Any] | None = None
        self._told = ""

    @contextmanager
    def begin(self, table: Table) -> Iterator[None]:
        """Has the rules of the block end in time. Raises DeadlineExceeded."""
        if self.late is not None and not self.late.done():
            raise RuleUnanswered(f"{self._told} yet")
        try:
            with table.until(self.time.begin()):
                yield
        except RuleUnanswered as error:
            self.late, self._told = error.call, str(error)
            raise


class ClusterState:
    """Nodes, pods and the other objects that scheduling looks at, as they are at one moment.

    Attributes:
        infos: the pods that hold or await a place, by `namespace/name`.
        finished: the keys of those that have succeeded or failed, and hold nothing.
        limit: of decisions about it and its copies.
        nodes_unread: True where there are nodes that may not be read, so that none can be judged.
        pods_unread: why not all pods could be read; empty where they could.
    """

    def __init__(
        self, objects: Iterable[Object], profiles: Profiles | None = None, limit: DecisionLimit | None = None
    ) -> None:
        """Raises MalformedCluster where an object states a quantity that is none."""
        self.profiles = profiles or Profiles([default_profile()])
        self.limit = limit or DecisionLimit()
        self.table = Table(self.profiles.features)
        self.infos: dict[str, PodInfo] = {}
        self.finished: set[str] = set()
        self.nodes_unread, self.pods_unread = False, ""
        for obj in objects:
            with naming(obj):
                self.add(obj)

    def copy(self, profiles: Profiles | None = None) -> ClusterState:
        """The same cluster once more, which may be changed, under these profiles or the same ones."""
        twin = ClusterState((), profiles or self.profiles, self.limit)
        twin.finished = set(self.finished)
        twin.nodes_unread, twin.pods_unread = self.nodes_unread, self.pods_unread
        for _, objects in self.table.objects.kinds():
            for obj in objects.values():
                twin.add(obj)
        for row in self.table.nodes.rows.tolist():
            twin.add(self.table.nodes.node(row))
        for info in self.infos.values():
            twin.add_info(info)
        return twin

    def objects(self) -> Iterator[Object]:
        """Yields every object, pods as they stand now; finished pods are left out."""
        yield from (self.table.nodes.node(row) for row in self.table.nodes.rows.tolist())
        yield from (info.pod for info in self.infos.values())
        for _, objects in self.table.objects.kinds():
            yield from objects.values()

    @property
    def pending(self) -> list[PodInfo]:
        """The pods that stand on no node."""
        return [info for info in self.infos.values() if not info.pod.node_name]

    def info(self, key: str) -> PodInfo:
        """The pod `namespace/name`. Raises UnknownPod."""
        if key in self.finished:
            raise UnknownPod(f"pod {key} has finished: it holds nothing, and nobody schedules it again")
        if key not in self.infos:
            raise UnknownPod(f"no pod {key} in this cluster (pods go by NAMESPACE/NAME)")
        return self.infos[key]

    def node(self, name: str) -> Node:
        """The node of this name. Raises UnknownNode."""
        if not self.table.nodes.has(name):
            known = self.table.nodes.names_of(self.table.nodes.rows[:_MOST_COMPARED])
            raise UnknownNode(f"no node {name} in this cluster{did_you_mean(name, known)}")
        return self.table.nodes.node(self.table.nodes.row_of[name])

    def standing_on(self, name: str) -> list[PodInfo]:
        row = self.table.nodes.row_of[name]
        return self.table.pods.at(self.table.pods.on(row))

    def add(self, obj: Object) -> None:
        if isinstance(obj, Node):
            self.table.set_node(obj)
        elif isinstance(obj, Pod) and obj.finished:
            self.finished.add(obj.key)
        elif isinstance(obj, Pod):
            self.add_info(PodInfo(obj))
        else:
            self.table.set_object(type(obj).__name__, obj)

    def remove_pod(self, info: PodInfo) -> None:
        self.infos.pop(info.pod.key, None)
        self.table.withdraw(info.uid)
        self.table.take_away(info.uid)

    def admit(self, pod: Pod | Mapping[str, Any]) -> Admitted:
        """The pod that is meant: a mapping is checked, and becomes what the API server would store.

        Raises:
            MalformedCluster: with the path of every fault.
        """
        if isinstance(pod, Pod):
            return Admitted(pod)
        if not isinstance(pod, Mapping) or pod.get("kind", "Pod") != "Pod":
            raise MalformedCluster("pod: want a Pod")
        converted = to_pod(pod)
        workload = workload_of(pod, "pod")
        assert workload is not None
        with naming(converted):
            return admit(converted, workload.manifest, self.table.objects)

    def as_if_waiting(self, pod: Pod) -> PodInfo:
        """The pod as it is judged: one that stands here as if it did not."""
        standing = pod.uid in self.table.pods.slot_of
        return PodInfo(pod.placed_on("") if standing and pod.node_name else pod)

    def decide(self, pod: Pod) -> Decision:
        """Decides about the pod on every node; one that stands here is judged as if it did not.

        Raises:
            MalformedCluster: the pod states a quantity that is none.
            ExtenderError: a rule of the user's failed.
        """
        info, profile = self.as_if_waiting(pod), self.profiles.of(pod)
        with naming(pod), self.deciding(), self.table.hypothetically(removed=[info.uid]):
            fit = find_fit(profile, info, self.table, self.table.nodes.rows)
            feasible = fit.feasible
            scoring = score(profile, info, self.table, feasible)
            helpless = len(feasible) or profile.preemption is None
            preemption = None if helpless else preempt(profile, info, self.table, fit)
        return Decision(info.pod, self.table.nodes.names, fit, scoring, preemption)

    def fit(self, pod: Pod, rows: Rows | None = None) -> Fit:
        """Filters the rows, by default all; nothing is scored."""
        info = self.as_if_waiting(pod)
        with self.deciding(), self.table.hypothetically(removed=[info.uid]):
            return find_fit(self.profile(pod), info, self.table, self.table.nodes.rows if rows is None else rows)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Has rules asked in the block: within the limit, and with their errors as one line each."""
        with rule_errors(), self.limit.begin(self.table):
            yield

    def feasible(self, pod: Pod, rows: Rows | None = None) -> list[str]:
        """The names of the nodes that can take the pod."""
        return self.table.nodes.names_of(self.fit(pod, rows).feasible)

    def profile(self, pod: Pod) -> Profile:
        return self.profiles.of(pod)

    def rows_of(self, names: Iterable[str]) -> Rows:
        return np.array([self.table.nodes.row_of[name] for name in names], np.intp)

    @contextmanager
    def supposing(self, objects: Iterable[Object] = (), gone: Iterable[PodInfo] = ()) -> Iterator[None]:
        """Inside the block nodes, claims, pods and others are as given, and those pods gone; then all is as before."""
        before = [(obj, self._as_it_is(obj)) for obj in objects]
        try:
            for obj, _ in before:
                self.add(obj)
            with self.table.hypothetically(removed=[info.uid for info in gone]):
                yield
        finally:
            for obj, old in reversed(before):
                if old is not None:
                    self.add(old)
                elif isinstance(obj, Node):
                    self.table.remove_node(obj.name)
                elif isinstance(obj, Pod):
                    self.remove_pod(self.infos[obj.key])
                else:
                    self.table.remove_object(type(obj).__name__, obj.key)

    def _as_it_is(self, obj: Object) -> Object | None:
        if isinstance(obj, Node):
            return self.node(obj.name) if self.table.nodes.has(obj.name) else None
        if isinstance(obj, Pod):
            return self.infos[obj.key].pod if obj.key in self.infos else None
        return self.table.objects.get(type(obj), obj.key)

    def add_info(self, info: PodInfo) -> None:
        """Adds or replaces a pod that has not finished: where it stands, or as one that waits."""
        pod = info.pod
        self.infos[pod.key] = info
        self.table.withdraw(pod.uid)
        if pod.node_name:
            self.table.place(info, pod.node_name)
        elif pod.status.nominated_node_name:
            self.table.nominate(info, pod.status.nominated_node_name)


def is_pinned(pod: Pod) -> bool:
    """Returns True if nobody moves the pod: one like it stands on every such node, or it belongs to this one."""
    return pod.controller is not None and pod.controller.kind in ("DaemonSet", "Node")


@contextmanager
def naming(obj: Object) -> Iterator[None]:
    """A quantity in `obj` that is none is reported with the object's name."""
    try:
        yield
    except MalformedQuantity as error:
        raise MalformedCluster(f"{type(obj).__name__} {obj.key}: {error}") from None


@contextmanager
def rule_errors() -> Iterator[None]:
    """A rule of the user's that raises becomes one line that names it."""
    try:
        yield
    except ExtenderError:
        raise
    except Exception as error:
        if not (notes := "; ".join(getattr(error, "__notes__", ()))):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise RuleFailed(
            f"{notes.removeprefix('in ')} raised {told} ({place.filename}, line {place.lineno})"
        ) from error
