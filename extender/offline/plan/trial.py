"""Says which pods a plan may evict, and carries evictions out on a copy of the cluster, with the scheduler's decisions.

The rule of every plan: the node that a pod leaves is cordoned before the eviction, until the last move is done. So the
pod's replacement goes elsewhere, and no other pod takes the freed room too early. If a replacement finds no node, the
nodes that earlier moves have left are uncordoned for it, as a chain of moves needs. The replacement must get a node
before anything else is evicted. A move may direct it to one node, by cordoning the others until it is placed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from extender.errors import ConfigurationError
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup, SchedulingGroup
from extender.model.selectors import Selector, parse_selector
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from extender.offline.answers import Documented
from extender.offline.explain.pod_terms import with_cordon
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.offline.what_if import budgets
from extender.offline.what_if.simulation import Eviction, Placement, Simulation
from extender.offline.workloads import in_order
from extender.table import PodInfo

AUTOSCALER_ANNOTATION = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KARPENTER_ANNOTATION = "karpenter.sh/do-not-disrupt"
_MOST_GROUPS_ABOVE = 10  # ends the search also if groups name each other as parents
_HOSTNAME = "kubernetes.io/hostname"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MOST_CORDONED = 50
"""At most so many nodes are cordoned to direct one pod."""
_CAUSE = "plan"


@dataclass(frozen=True, slots=True)
class KeepRules:
    """The user's rules about which pods may be evicted.

    Attributes:
        namespaces: the pods of these namespaces stay.
        selectors: pods whose labels match one of these selectors stay.
        most_priority: pods of a higher priority stay; None means that no priority protects a pod.
        bare_pods: True if pods without a controller may be evicted. Whoever carries out the plan recreates them.
    """

    namespaces: frozenset[str] = frozenset()
    selectors: Sequence[Selector] = ()
    most_priority: int | None = None
    bare_pods: bool = False

    def keeps(self, pod: Pod) -> bool:
        """Returns True if the pod is in one of the namespaces, or has the labels of one of the selectors."""
        return pod.namespace in self.namespaces or any(each.matches(pod.labels) for each in self.selectors)


def rules_of(keep: Iterable[str], most_priority: int | None, *, bare_pods: bool) -> KeepRules:
    """Returns the rules; each of `keep` is a namespace such as `kube-system`, or a label selector such as `app=web`.

    Raises:
        ConfigurationError: a selector cannot be parsed.
    """
    namespaces, selectors = set(), []
    for each in keep:
        if _NAMESPACE.fullmatch(each):
            namespaces.add(each)
            continue
        try:
            selectors.append(parse_selector(each))
        except ValueError as error:
            raise ConfigurationError([f"keep: expected a namespace or a label selector: {error}"]) from None
    return KeepRules(frozenset(namespaces), selectors, most_priority, bare_pods)


def keeping_nothing(keep: Iterable[str], state: ClusterState) -> list[str]:
    """Returns those of `keep`, as `rules_of` takes them, that keep no pod of the cluster; they may be misspelt."""
    rules = {each: rules_of([each], None, bare_pods=False) for each in keep}
    return [each for each, rule in rules.items() if not any(rule.keeps(info.pod) for info in state.infos.values())]


def obstacle(info: PodInfo, state: ClusterState, rules: KeepRules) -> str | None:
    """Returns why no plan may evict the pod; None if a plan may evict it.

    The answer does not depend on the moment: a budget that allows no eviction now may allow one later.
    """
    pod = info.pod
    if is_pinned(pod) or (pod.controller is not None and pod.controller.kind == Node.__name__):
        return "belongs to a DaemonSet, or is static"
    if pod.terminating:
        return "is being deleted"
    if pod.controller is None and not rules.bare_pods:
        return "has no controller that would recreate it"
    if (annotation := _protecting_annotation(pod)) is not None:
        return f"has the annotation {annotation}"
    if _has_local_volume(info, state):
        return "uses a volume that only its node has"
    if _is_disrupted_whole(pod, state):
        return "belongs to a group that is disrupted only as a whole"
    if len(budgets.covering(pod, state)) > 1:
        return "is covered by more than one PodDisruptionBudget"
    if rules.keeps(pod):
        return "is to be kept"
    if rules.most_priority is not None and pod.priority > rules.most_priority:
        return f"has a priority above {rules.most_priority}"
    return None


def _protecting_annotation(pod: Pod) -> str | None:
    if pod.annotations.get(AUTOSCALER_ANNOTATION) == "false":
        return f"{AUTOSCALER_ANNOTATION}=false"
    if pod.annotations.get(KARPENTER_ANNOTATION) == "true":
        return f"{KARPENTER_ANNOTATION}=true"
    return None


def _is_disrupted_whole(pod: Pod, state: ClusterState) -> bool:
    """Returns True if a group of the pod, its PodGroup or one above, is disrupted only as a whole."""
    group: SchedulingGroup | None = state.objects.get(PodGroup, pod.group_key) if pod.group_key else None
    for _ in range(_MOST_GROUPS_ABOVE):
        if group is None or group.is_disrupted_whole:
            return group is not None
        group = state.objects.get(CompositePodGroup, group.parent_key) if group.parent_key else None
    return False


def _has_local_volume(info: PodInfo, state: ClusterState) -> bool:
    """Returns True if a claim of the pod is bound to a volume that names its node by hostname, as local volumes do."""
    for use in info.claims:
        claim = state.objects.get(PersistentVolumeClaim, use.key)
        volume = state.objects.get(PersistentVolume, claim.spec.volume_name) if claim is not None else None
        affinity = volume.spec.node_affinity if volume is not None else None
        terms = affinity.required.node_selector_terms or () if affinity is not None and affinity.required else ()
        if any(each.key == _HOSTNAME for term in terms for each in term.match_expressions or ()):
            return True
    return False


class Move(Documented, frozen=True):
    """One eviction of a plan.

    Attributes:
        pod: the pod to evict, as `namespace/name`. Its controller may give another name to its replacement.
        source: the node that the pod leaves. It is cordoned before the eviction, until all moves are done.
        target: the node on which the scheduler places the replacement.
        uncordoned: the nodes that are uncordoned after the eviction already, because the replacement needs one of them.
        cordoned: the nodes that are cordoned during this step only, because the scheduler could place the replacement
            there instead.
        released: the nodes that are uncordoned after this step, so that the scheduler places waiting pods there.
        placements: the waiting pods that the scheduler places in this step. The next step begins when they have nodes.
    """

    pod: str
    source: str
    target: str
    uncordoned: Sequence[str] = ()
    cordoned: Sequence[str] = ()
    released: Sequence[str] = ()
    placements: Sequence[Placement] = ()


@dataclass(frozen=True, slots=True)
class DirectedMove:
    """A move before it is carried out.

    Attributes:
        pod: the pod to evict, as `namespace/name`.
        target: the node on which it is to be placed again; None leaves the choice to the scheduler.
        released: the nodes to uncordon after it.
    """

    pod: str
    target: str | None = None
    released: Sequence[str] = ()


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
        steps: what was asked for with each move.
        held: the nodes that are cordoned for moves, as they were before.
    """

    def __init__(self, state: ClusterState, seed: int, now: datetime) -> None:
        self.state = state
        self.moves: list[Move] = []
        self.steps: list[DirectedMove] = []
        self._seed = seed
        self._now = now
        self.held: dict[str, Node] = {}
        self._waiting = [info.pod.key for info in state.pending]
        """The pods without a node after the last move."""

    def branch(self) -> PlanTrial:
        """Returns a trial after the same moves, on the same cluster."""
        twin = copy(self)
        twin.moves = list(self.moves)
        twin.steps = list(self.steps)
        twin.held = dict(self.held)
        twin._waiting = list(self._waiting)
        return twin

    def situation(self) -> object:
        """Returns all that decides what further moves do: where moved pods are, which pods wait, and what is cordoned.

        Two trials that began with the same cluster differ in nothing else.
        """
        infos = self.state.infos
        moved = frozenset((move.pod, infos[move.pod].pod.node_name) for move in self.moves)
        placed = frozenset((each.pod, each.node) for move in self.moves for each in move.placements)
        return moved, placed, frozenset(self.held)

    def evict(self, key: str, target: str | None = None) -> None:
        """Evicts the pod `namespace/name`, whose replacement the scheduler places.

        Args:
            target: the node on which the replacement is to be placed: the others that could take it are cordoned during
                the step. None leaves the choice to the scheduler.

        Raises:
            MoveRefused: the eviction is not allowed, or the replacement gets no node, or not the one that is wanted.
        """
        info = self.state.infos.get(key)
        if info is None or not info.pod.node_name:
            raise MoveRefused(f"pod {key} is on no node")
        source = info.pod.node_name
        if target == source:
            raise MoveRefused(f"pod {key} is on {source} already")
        self._hold(source)
        if (objection := budgets.objection(info.pod, self.state)) is not None:
            raise MoveRefused(f"pod {key}: {objection}")
        uncordoned: Sequence[str] = [target] if target in self.held else ()
        cordoned: dict[str, Node] = {}
        with self._scheduling(evictions=1) as simulation:
            simulation.evict(info, _CAUSE, recreated_by_user=info.pod.controller is None)
            if target is not None:
                cordoned = self._cordon_others(key, target)
                for name in uncordoned:
                    simulation.update_node(self.held.pop(name))
        if self.unplaced([key]) and target is None:
            uncordoned = self._release([name for name in self.held if name != source])
        if self.unplaced([key]):
            raise MoveRefused(f"pod {key} gets no node after its eviction: {simulation.log.reasons.get(key)}")
        placed_on = self.state.infos[key].pod.node_name
        if placed_on != (target or placed_on) or placed_on == source:
            raise MoveRefused(f"pod {key} goes to {placed_on} instead of {target or 'another node'}")
        self._uncordon(cordoned)
        self.steps.append(DirectedMove(key, target))
        self.moves.append(Move(key, source, placed_on, uncordoned, tuple(cordoned), placements=self._new_placements()))

    def _new_placements(self) -> Sequence[Placement]:
        """Returns the pods that have waited until the last call, and that have a node now."""
        still = set(self.unplaced(self._waiting))
        placed = [key for key in self._waiting if key not in still]
        self._waiting = [key for key in self._waiting if key in still]
        return tuple([Placement(key, self.state.infos[key].pod.node_name) for key in placed])

    def _cordon_others(self, key: str, target: str) -> dict[str, Node]:
        """Cordons the nodes that the scheduler could choose instead of `target`; returns them as they were before.

        Raises:
            MoveRefused: the target cannot take the pod, or too many nodes would have to be cordoned.
        """
        engine, info = self.state.engine, self.state.infos[key]
        feasible = engine.feasible(info)
        if target not in self.held and target not in feasible:
            raise MoveRefused(f"{target} cannot take pod {key}")
        others = [name for name in feasible if name != target]
        if others and engine.decide(info, feasible).best == [target]:
            others = []
        if len(others) > MOST_CORDONED:
            raise MoveRefused(f"{len(others)} nodes would have to be cordoned to place pod {key} on {target}")
        cordoned = {name: self.state.node(name) for name in others}
        for node in cordoned.values():
            self.state.add(with_cordon(node, unschedulable=True))
        return cordoned

    def release(self, names: Sequence[str]) -> None:
        """Uncordons those of the nodes that moves have left, so that the scheduler places waiting pods there.

        Raises:
            MoveRefused: the scheduler preempts a pod.
        """
        released = self._release([name for name in self.held if name in names])
        if released:
            last, placements = self.moves[-1], self._new_placements()
            self.moves[-1] = msgspec.structs.replace(
                last, released=(*last.released, *released), placements=(*last.placements, *placements)
            )
            self.steps[-1] = replace(self.steps[-1], released=(*self.steps[-1].released, *released))

    def finish(self, created: Sequence[PodInfo]) -> None:
        """Uncordons all nodes, and adds the pods that are to be created when the moves are done.

        Raises:
            MoveRefused: the scheduler preempts a pod.
        """
        if self.moves and not self.held:  # the end of the last move is the end of the plan
            self.moves[-1] = msgspec.structs.replace(self.moves[-1], released=(), placements=())
        self._release(list(self.held))
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
            self.held[name] = node
            self.state.add(with_cordon(node, unschedulable=True))

    def _release(self, names: Sequence[str]) -> Sequence[str]:
        """Uncordons these nodes, which are held, and lets the scheduler place waiting pods there."""
        self._uncordon({name: self.held.pop(name) for name in names})
        return names

    def _uncordon(self, nodes: Mapping[str, Node]) -> None:
        """Makes the nodes as they are given, and lets the scheduler place waiting pods there."""
        if nodes:
            with self._scheduling() as simulation:
                for node in nodes.values():
                    simulation.update_node(node)

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
