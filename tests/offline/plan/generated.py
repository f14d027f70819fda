"""Small random clusters with a pod that does not fit, and an exhaustive search for the shortest plan in them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import combinations
from random import Random

from extender import Cluster
from extender.offline.explain.pod_terms import with_cordon
from extender.offline.manifests.templates import Workload
from extender.offline.plan.attempts import Score, Side
from extender.offline.plan.goals import shape_of
from extender.offline.plan.trial import KeepRules, MoveRefused, PlanTrial, obstacle, settle
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.offline.what_if.result import balance_of
from extender.table import PodInfo
from tests.builders import ZONE, Object, make_node, make_pdb, make_pod
from tests.builders.pod import PodBuilder

NOW = datetime(2026, 11, 29, tzinfo=UTC)
TARGET = "default/target"
_MOST_PODS = 6


def generated(seed: int) -> list[Object]:
    """Returns the objects of a cluster with at most six placed pods, in which the pod `default/target` waits."""
    random = Random(seed)
    objects: list[Object] = []
    free: dict[str, int] = {}
    for number in range(random.randint(3, 4)):
        name, cpu = f"n{number}", random.randint(3, 5)
        node = make_node(name).capacity(cpu=str(cpu), pods=str(random.choice((3, 110, 110))))
        node.label({ZONE: random.choice("ab")})
        if random.random() < 0.15:
            node.taint("dedicated", "db", effect="NoSchedule")
        objects.append(node.obj())
        free[name] = cpu
    for number in range(random.randint(4, _MOST_PODS)):
        cpu = random.randint(1, 3)
        places = [name for name, left in free.items() if left >= cpu]
        if not places:
            break
        name = random.choice(places)
        free[name] -= cpu
        app = random.choice("xyz")
        pod = make_pod(f"p{number}").label(app=app).req(cpu=str(cpu)).node(name).priority(random.choice((0, 0, 5)))
        pod.owner(random.choice(("ReplicaSet", "ReplicaSet", "ReplicaSet", "DaemonSet")), f"{app}-5d8f")
        _restrict(random, pod)
        objects.append(pod.obj())
    # One more than any node has free, mostly: then only evictions help.
    most = max(free.values()) + random.choice((0, 1, 1, 1, 1, 2))
    target = make_pod("target").label(app=random.choice("xyz")).req(cpu=str(most)).priority(5)
    target.preemption_policy("Never")
    _restrict(random, target)
    objects.append(target.obj())
    if random.random() < 0.3:
        pending = make_pod("other").req(cpu="1").priority(random.choice((0, 9))).preemption_policy("Never")
        objects.append(pending.obj())
    if random.random() < 0.4:
        allowed = {"disruptionsAllowed": random.choice((0, 1)), "currentHealthy": 2, "desiredHealthy": 1}
        objects.append({**make_pdb("x", {"app": "x"}, minAvailable=1), "status": {**allowed, "observedGeneration": 1}})
    return objects


def _restrict(random: Random, pod: PodBuilder) -> None:

    kind = random.randrange(14)
    if kind == 0:
        pod.node_selector({ZONE: random.choice("ab")})
    elif kind == 1:
        pod.anti_affinity("kubernetes.io/hostname", labels={"app": random.choice("xyz")})
    elif kind == 2:
        pod.spread(ZONE, labels={"app": random.choice("xyz")})
    elif kind == 3:
        pod.host_port(8080)
    elif kind == 4:
        pod.affinity(ZONE, labels={"app": random.choice("xyz")})
    elif kind == 5:
        pod.toleration("dedicated", operator="Exists")
    elif kind == 6:
        pod.annotation({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})


def base_of(objects: list[Object], cordoned: Sequence[str] = ()) -> ClusterState:
    """Returns the cluster in which the scheduler has nothing left to do, and then cordons these nodes."""
    state = Cluster.from_objects(objects)._state.copy()
    settle(state, 0, NOW)
    for name in cordoned:
        state.add(with_cordon(state.node(name), unschedulable=True))
    return state


def shortest(objects: list[Object], emptied: Sequence[str] = ()) -> int | None:
    """Returns the fewest evictions that end well, from all sequences of evictions; None if no sequence does.

    A sequence ends well if the target is placed, or if the nodes of `emptied`, which are cordoned before, are empty.
    """
    base = base_of(objects, emptied)
    level = [PlanTrial(base, 0, NOW)]
    while level:
        for trial in level:
            ended = _ended(trial)
            if ended is not None and (_is_empty(ended, emptied) if emptied else not ended.unplaced([TARGET])):
                return len(trial.moves)
        level = longer(level, movable_in(base))
    return None


def most_room(objects: list[Object], shape: Workload, most_moves: int, most: int) -> tuple[int, int]:
    """Returns how many pods of the shape have room after at most so many moves, and the fewest moves for that.

    All sequences of evictions are tried. No more than `most` pods are counted.
    """
    base = base_of(objects)
    copies = shape_of(base, shape, []).copies(base, 0, most)
    best = (-1, 0)
    level = [PlanTrial(base, 0, NOW)]
    for moves in range(most_moves + 1):
        for trial in level:
            ended = _ended(trial, copies)
            unplaced = ended.unplaced([info.pod.key for info in copies]) if ended is not None else ()
            if ended is not None:
                best = max(best, (most - len(unplaced), -moves))
        level = longer(level, movable_in(base))
    return best[0], -best[1]


def movable_in(base: ClusterState) -> list[str]:
    return [
        info.pod.key for info in base.infos.values() if info.pod.node_name and obstacle(info, base, KeepRules()) is None
    ]


def longer(level: list[PlanTrial], movable: Sequence[str]) -> list[PlanTrial]:
    """Returns all trials that have one more move than one of these, one for each situation."""
    more = (
        after
        for trial in level
        for key in movable
        for target in (None, *trial.state.node_names())
        if (after := _with(trial, key, target)) is not None
    )
    return list({after.situation(): after for after in more}.values())


def released(level: list[PlanTrial]) -> list[PlanTrial]:
    """Returns these trials, and those in which some of the nodes that moves have left are uncordoned."""
    found = {trial.situation(): trial for trial in level}
    for trial in level:
        for size in range(1, len(trial.held) + 1):
            for names in combinations(trial.held, size):
                after = copied(trial)
                with suppress(MoveRefused):
                    after.release(names)
                    if after.situation() not in found:
                        level.append(found.setdefault(after.situation(), after))
    return list(found.values())


def _is_empty(trial: PlanTrial, names: Sequence[str]) -> bool:
    return all(is_pinned(info.pod) for name in names for info in trial.state.pods_on(name))


def with_more_targets(objects: list[Object], seed: int) -> tuple[list[Object], list[str]]:
    """Returns the cluster with one or two more pods that wait, of other priorities, and the names of all of them."""
    random = Random(f"more {seed}")
    more = [
        make_pod(f"target-{number}").label(app=random.choice("xyz")).req(cpu=str(random.randint(1, 4)))
        for number in range(random.randint(1, 2))
    ]
    for pod in more:
        pod.priority(random.choice((0, 5, 5, 9))).preemption_policy("Never")
        _restrict(random, pod)
    return [*objects, *(pod.obj() for pod in more)], [TARGET, *(f"default/target-{n}" for n in range(len(more)))]


def copied(trial: PlanTrial) -> PlanTrial:
    """Returns a trial after the same moves, on a copy of its cluster."""
    twin = trial.branch()
    twin.state = trial.state.copy()
    return twin


def best_score(objects: list[Object], targets: list[str]) -> Score:
    """Returns the score of the best sequence of evictions."""
    base = base_of(objects)
    movable = movable_in(base)
    priorities = {key: base.infos[key].priority for key in targets}
    levels = sorted(set(priorities.values()), reverse=True)
    best = Score((), 0)
    everything = tuple(sum(each == level for each in priorities.values()) for level in levels)
    reached = [PlanTrial(base, 0, NOW)]
    while reached and best.placed != everything:
        for trial in reached:
            ended = copied(trial)
            with suppress(MoveRefused):
                ended.finish(())
                placed = [priorities[key] for key in set(targets) - set(ended.unplaced(targets))]
                score = Score(tuple(placed.count(level) for level in levels), -len(trial.moves))
                best = max(best, score)
        reached = released(longer(reached, movable))
    return best


def gentlest(objects: list[Object], targets: list[str], score: Score) -> Side | None:
    """Returns the best side effects of all plans of this score in which the scheduler chooses every node, if any."""
    base = base_of(objects)
    movable = movable_in(base)
    priorities = {key: base.infos[key].priority for key in targets}
    levels = sorted(set(priorities.values()), reverse=True)
    reached = [PlanTrial(base, 0, NOW)]
    for _ in range(-score.moves):
        more = [after for trial in reached for key in movable if (after := _with(trial, key, None)) is not None]
        reached = list({after.situation(): after for after in more}.values())
    sides: list[Side] = []
    for trial in reached:
        ended = _ended(trial)
        if ended is not None:
            placed = [priorities[key] for key in set(targets) - set(ended.unplaced(targets))]
            if tuple(placed.count(level) for level in levels) == score.placed:
                sides.append(_side(ended))
    return max(sides, default=None)


def _side(trial: PlanTrial) -> Side:
    priorities = sorted(-trial.state.infos[move.pod].priority for move in trial.moves)
    shares = balance_of(trial.state).fragmentation
    return Side(tuple(priorities), -round((shares["cpu"] + shares["memory"]) / 2, 4))


def _with(trial: PlanTrial, key: str, target: str | None) -> PlanTrial | None:
    if any(move.pod == key for move in trial.moves):
        return None
    if target is not None and not _has_room(trial, key, target):
        return None
    after = copied(trial)
    try:
        after.evict(key, target)
    except MoveRefused:
        return None
    return after


def _has_room(trial: PlanTrial, key: str, target: str) -> bool:
    """Returns False if requests alone show that the node cannot take the pod; this saves most of the time."""
    state = trial.state
    free = {name: allocatable - requested for name, (allocatable, requested) in state.resources().items()}
    place = state.node_names().index(target)
    return all(int(free[name][place]) >= amount for name, amount in state.infos[key].requests.items() if name in free)


def _ended(trial: PlanTrial, created: Sequence[PodInfo] = ()) -> PlanTrial | None:
    ended = copied(trial)
    try:
        ended.finish(created)
    except MoveRefused:
        return None
    return ended
