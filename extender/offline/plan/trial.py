"""Carries evictions out on a copy of the cluster, one after another, with the scheduler's own decisions.

The rule of every plan: the node that a pod leaves is cordoned before the eviction, until the last move is done. So the
pod's replacement goes elsewhere, and no other pod takes the freed room too early. If a replacement finds no node, the
nodes that earlier moves have left are uncordoned for it, as a chain of moves needs. The replacement must get a node
before anything else is evicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from extender.model.node import Node
from extender.offline.answers import Documented
from extender.offline.controllers.workloads import in_order
from extender.offline.explain.pod_terms import with_cordon
from extender.offline.state import ClusterState
from extender.offline.what_if import budgets
from extender.offline.what_if.simulation import Eviction, Simulation
from extender.table import PodInfo

_CAUSE = "plan"


class Move(Documented, frozen=True):
    """One eviction of a plan.

    Attributes:
        pod: the pod to evict, as `namespace/name`. Its controller may give another name to its replacement.
        source: the node that the pod leaves. It is cordoned before the eviction, until all moves are done.
        target: the node on which the scheduler places the replacement.
        uncordoned: the nodes that are uncordoned after the eviction already, because the replacement needs one of them.
    """

    pod: str
    source: str
    target: str
    uncordoned: Sequence[str] = ()


class MoveRefused(Exception):
    """An eviction is not allowed, or does not end as a plan must. The message says why, in words for people."""


class Checkpoint:
    """A cluster as it is now. To return to it takes a hundredth of the time that a copy of a large cluster takes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._infos = dict(state.infos)
        self._nodes = state.nodes()
        self._objects = {kind: dict(objects) for kind, objects in state.objects.kinds()}

    def restore(self) -> None:
        """Undoes every change of the cluster."""
        self._restore_pods()
        state = self._state
        for node in self._nodes:
            if state.node(node.name) is not node:
                state.add(node)
        for kind, objects in list(state.objects.kinds()):
            before = self._objects.get(kind, {})
            for key in objects.keys() - before.keys():
                state.remove(kind, key)
            for obj in [obj for key, obj in before.items() if objects.get(key) is not obj]:
                state.add(obj)

    def _restore_pods(self) -> None:
        infos = self._state.infos
        for info in [info for key, info in infos.items() if self._infos.get(key) is not info]:
            self._state.remove_pod(info)
        for info in [info for key, info in self._infos.items() if infos.get(key) is not info]:
            self._state.add_info(info)
        infos.clear()
        infos.update(self._infos)  # in the same order as before


def settle(state: ClusterState, seed: int, now: datetime) -> Sequence[Eviction]:
    """Lets the scheduler run until it has nothing left to do; returns the pods that it preempts."""
    simulation = Simulation(state, seed, now=now)
    simulation.add(in_order(state.pending))
    simulation.settle()
    budgets.observe(state, every=False)
    return simulation.log.evictions


class PlanTrial:
    """A cluster during a plan: after some moves, with the nodes cordoned that they have left.

    Args:
        state: the cluster, in which nothing is left for the scheduler to do. The trial changes it, so pass a copy.
        now: the time of all moves.

    Attributes:
        moves: the moves so far.
    """

    def __init__(self, state: ClusterState, seed: int, now: datetime) -> None:
        self.state = state
        self.moves: list[Move] = []
        self._seed = seed
        self._now = now
        self._held: dict[str, Node] = {}
        """The nodes that are cordoned for moves, as they were before."""

    def copy(self) -> PlanTrial:
        return self.branch(self.state.copy())

    def branch(self, state: ClusterState | None = None) -> PlanTrial:
        """Returns a trial after the same moves, on this cluster or on a copy of it."""
        twin = PlanTrial(state or self.state, self._seed, self._now)
        twin.moves = list(self.moves)
        twin._held = dict(self._held)
        return twin

    def evict(self, key: str) -> None:
        """Evicts the pod `namespace/name`, whose replacement the scheduler places.

        Raises:
            MoveRefused: the eviction is not allowed, or the replacement gets no node.
        """
        info = self.state.infos.get(key)
        if info is None or not info.pod.node_name:
            raise MoveRefused(f"pod {key} is on no node")
        source = info.pod.node_name
        self._hold(source)
        if (objection := budgets.objection(info.pod, self.state)) is not None:
            raise MoveRefused(f"pod {key}: {objection}")
        with self._scheduling(evictions=1) as simulation:
            simulation.evict(info, _CAUSE, recreated_by_user=info.pod.controller is None)
        uncordoned: Sequence[str] = ()
        if self.unplaced([key]):
            uncordoned = self._release(but=source)
        if self.unplaced([key]):
            raise MoveRefused(f"pod {key} gets no node after its eviction: {simulation.log.reasons.get(key)}")
        target = self.state.infos[key].pod.node_name
        if target == source:
            raise MoveRefused(f"pod {key} returns to {source}, although that is cordoned")
        self.moves.append(Move(key, source, target, uncordoned))

    def finish(self, created: Sequence[PodInfo]) -> None:
        """Uncordons all nodes, and adds the pods that are to be created when the moves are done.

        Raises:
            MoveRefused: the scheduler preempts a pod.
        """
        self._release()
        if created:
            with self._scheduling() as simulation:
                simulation.add(created)

    def unplaced(self, keys: Sequence[str]) -> list[str]:
        """Returns those of the pods that have no node now."""
        return [key for key in keys if key not in self.state.infos or not self.state.infos[key].pod.node_name]

    def _hold(self, name: str) -> None:
        """Cordons the node, unless it is cordoned already."""
        node = self.state.node(name)
        if not node.spec.unschedulable:
            self._held[name] = node
            self.state.add(with_cordon(node, unschedulable=True))

    def _release(self, but: str = "") -> Sequence[str]:
        """Uncordons the nodes that are held except `but`, and lets the scheduler place waiting pods there."""
        released = [name for name in self._held if name != but]
        if released:
            with self._scheduling() as simulation:
                for name in released:
                    simulation.update_node(self._held.pop(name))
        return released

    @contextmanager
    def _scheduling(self, evictions: int = 0) -> Iterator[Simulation]:
        """Runs the scheduler after the `with` block until nothing changes.

        Raises:
            MoveRefused: more pods than the block evicts lose their nodes, by preemption or with a Job that fails.
        """
        simulation = Simulation(self.state, self._seed, now=self._now)
        simulation.add(in_order(self.state.pending))
        yield simulation
        simulation.settle()
        lost = simulation.log.evictions[evictions:]
        if lost:
            raise MoveRefused(f"pod {lost[0].pod} would lose its node, because of {lost[0].cause}")
