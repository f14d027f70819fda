"""The answer of `extender plan`: the moves, or the proof that none help; as text, and as a script for kubectl.

`find_moves` counts the moves that let one pod run, as fast as `explain` can wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from extender.errors import ConfigurationError
from extender.model.pod import Pod
from extender.offline import rendering
from extender.offline.answers import Documented
from extender.offline.explain.explanation import KnownMoves
from extender.offline.manifests.templates import Workload
from extender.offline.plan import solver
from extender.offline.plan.attempts import MOST_MOVES, SEARCH_SECONDS, Findings, Progress, SearchOptions
from extender.offline.plan.goals import MOST_ROOM, Room, empty, make_room, nodes_to_choose_from, shape_of
from extender.offline.plan.model import UNREACHABLE
from extender.offline.plan.script import script
from extender.offline.plan.search import Search
from extender.offline.plan.trial import Move, keeping_nothing, rules_of
from extender.offline.remarks import remarks_on
from extender.offline.state import ClusterState
from extender.offline.what_if.scenario import check_names, created_pods
from extender.offline.what_if.simulation import Eviction, Placement
from extender.runtime.clock import Clock, SystemClock
from extender.runtime.text import MOST_ROWS, Cells, counted, listed, printable, section
from extender.table import PodInfo

_MOST_COMPARED = 30
_EXHAUSTED = (
    "the pods could be arranged so, but no order of evictions leads there; all orders were tried, each pod evicted once"
    " and directed to each node with room, but another --seed may end differently"
)

Outcome = Literal["fits", "moves", "partial", "impossible", "unknown"]
_MOST_PODS = 10_000
_MOST_DECISIONS = 100
_FOREVER = 1e9


class PlannedPriority(Documented, frozen=True):
    """The pods to place of one priority.

    Attributes:
        priority: their priority.
        pods: how many there are.
        unmoved: how many of them the scheduler places without any move.
        placed: how many of them have a node once the moves are done.
        at_most: no plan places more of them that places as many of every higher priority.
    """

    priority: int
    pods: int
    unmoved: int
    placed: int
    at_most: int


class Planned(Documented, frozen=True, kw_only=True):
    """The answer of `extender plan`, as the command prints it.

    Attributes:
        outcome: `fits` if the scheduler places everything without a move, `moves` if the plan places everything,
            `partial` if it places more than the scheduler does without a move, `impossible` if it is proved that no
            arrangement of the movable pods places everything and no plan places more, else `unknown`.
        pods: the pods to place, as `namespace/name`.
        room: how much room the plan makes for a shape; null if it is about other things.
        emptied: the nodes that the plan empties, or those that were tried; they stay cordoned.
        moves: the evictions in their order, each with the node on which the scheduler places the pod again.
        placements: the nodes of the pods to place, once the moves are done.
        unplaced: the pods to place that have no node then.
        priorities: how many pods of each priority are placed, and at most could be; the highest priority comes first.
        smallest: true if it is proved that no plan is better: none places more by priority, and none that places as
            much has fewer moves.
        bound: no plan that places as much as possible has fewer moves than this.
        gentlest: true if all plans were compared that place as much with as few moves, and in which the scheduler
            chooses all nodes: none evicts fewer pods of high priority, or as few and leaves less fragmentation. Always
            false for room and for nodes to empty.
        fragmentation: after the moves, the share of the free resources on nodes without room for one more pod of
            average size, as the mean for CPU and memory; null if there are no moves.
        reason: why not everything is placed; null for the outcomes `fits` and `moves`.
        preempted: the pods that the scheduler preempts before any move, because of their lower priority.
        movable: the number of pods that a plan may evict.
        kept: why pods may not be evicted -> how many of them there are for each reason.
        notes: remarks for people, such as defaults that were filled in.
    """

    outcome: Outcome
    pods: Sequence[str]
    room: Room | None = None
    emptied: Sequence[str] = ()
    moves: Sequence[Move]
    placements: Sequence[Placement]
    unplaced: Sequence[str]
    priorities: Sequence[PlannedPriority]
    smallest: bool
    bound: int
    gentlest: bool
    fragmentation: float | None
    reason: str | None
    preempted: Sequence[Eviction]
    movable: int
    kept: Mapping[str, int]
    notes: Sequence[str]


class MovePlan(Planned, frozen=True, kw_only=True):
    """The fewest moves after which pods are placed, or why there are none; the attributes of `Planned`, and more.

    Attributes:
        evicted: the pods of `moves` as they are before the plan, by `namespace/name`.
        cordoned: the nodes of `moves` that are cordoned before the plan, so that its end leaves them cordoned.
        waiting: the pods to place that exist already; the others are created when the moves are done.
    """

    evicted: Mapping[str, Pod]
    cordoned: Sequence[str]
    waiting: frozenset[str]

    def __repr__(self) -> str:
        return f"Plan({summary(self)})"

    @property
    def succeeds(self) -> bool:
        """True if everything is placed at the end."""
        return self.outcome in ("fits", "moves")

    def to_dict(self) -> dict[str, Any]:
        """Returns the documented form, ready for JSON: see docs/plan.md."""
        return msgspec.convert(self, Planned, from_attributes=True).to_dict()

    def _repr_html_(self) -> str:
        return rendering.part("plan.html", self.to_dict(), summary=summary(self), side=side_effects(self))

    def to_html(self) -> str:
        """Returns the answer as a web page in one self-contained file."""
        return rendering.file("plan.html", self.to_dict(), summary=summary(self), side=side_effects(self))

    def to_script(self, kubectl_flags: Sequence[str] = ()) -> str:
        """Returns a script for bash, for review, which carries the moves out with kubectl and waits for each.

        Args:
            kubectl_flags: flags for each call of kubectl, such as `--context=test`.
        """
        created = [each for each in self.placements if each.pod not in self.waiting]
        waiting = [each for each in self.placements if each.pod in self.waiting]
        if self.room is not None:
            created = waiting = []
        return (
            "\n".join(script(summary(self), self.moves, self.evicted, self.emptied, waiting, created, kubectl_flags))
            + "\n"
        )


def plan(
    state: ClusterState,
    pods: Sequence[str | Workload],
    keep: Sequence[str] = (),
    *,
    room_for: Workload | str | None = None,
    empty_nodes: Sequence[str] = (),
    empty_count: int | None = None,
    most_moves: int | None = None,
    most_priority: int | None = None,
    bare_pods: bool = False,
    seconds: float = SEARCH_SECONDS,
    seed: int = 0,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> MovePlan:
    """Finds the fewest evictions after which these pods are placed, or proves that there are none.

    Instead of placing pods, a plan can make room for the most of a shape, or empty nodes.

    Args:
        pods: waiting pods of the cluster as `namespace/name`, and workloads to create when the moves are done.
        keep: namespaces and label selectors of pods that are not to be evicted.
        room_for: a shape, as `goals.shape_of` takes it.
        empty_nodes: nodes to empty, given by name or label.
        empty_count: how many of `empty_nodes` to empty, those with the fewest moves; None for all. If `empty_nodes` is
            empty, the nodes are chosen from all outside the control plane.
        most_moves: the most evictions of a plan; None for MOST_MOVES, or no limit if nodes are emptied.
        most_priority: pods of a higher priority are not evicted; None means that no priority protects a pod.
        bare_pods: True if pods without a controller may be evicted, which then have to be created again.
        seconds: how long to search; then the best plan so far is the answer.
        progress: called with each plan that is the best so far, in words.

    Raises:
        UnknownPod: the cluster has no pod of this name.
        ConfigurationError: a pod does not wait for a scheduler, or `keep` is neither a namespace nor a selector.
        MalformedCluster: the API server would refuse a workload.
    """
    rules = rules_of(keep, most_priority, bare_pods=bare_pods)
    is_emptying = bool(empty_nodes) or empty_count is not None
    if bool(pods) + (room_for is not None) + is_emptying != 1:
        raise ConfigurationError(["give one of: pods to place, a shape to make room for, nodes to empty"])
    most = most_moves if most_moves is not None else UNREACHABLE - 1 if is_emptying else MOST_MOVES
    options = SearchOptions(rules, seconds, most, seed=seed, clock=clock or SystemClock())
    is_changed = room_for is not None or any(isinstance(each, Workload) for each in pods)
    base = state.copy() if is_changed else state
    notes = [f"keep {each}: no pod is in such a namespace or has such labels" for each in keeping_nothing(keep, base)]
    if is_emptying:
        names = nodes_to_choose_from(base, empty_nodes, empty_count)
        chosen, found = empty(base, names, empty_count or len(names), options)
        return _answer(base, [], found, options, notes, emptied=chosen)
    if room_for is not None:
        room, copies, found = make_room(base, shape_of(base, room_for, notes), options)
        return _answer(base, copies, found, options, notes, room=room)
    waiting, created = _targets(base, pods, notes)
    found = Search(base, waiting, created, replace(options, compared=_MOST_COMPARED, progress=progress)).run()
    targets = [*waiting, *(info.pod.key for info in created)]
    notes += remarks_on(base, [*(base.infos[key].pod for key in waiting), *(info.pod for info in created)])
    return _answer(base, targets, found, options, notes)


def _targets(
    base: ClusterState, pods: Sequence[str | Workload], notes: list[str]
) -> tuple[Sequence[str], Sequence[PodInfo]]:
    """Returns the pods of the cluster to place, and those to create; adds the objects that these need to `base`."""
    waiting = list(dict.fromkeys(_waiting(base, each) for each in pods if isinstance(each, str)))
    created: list[PodInfo] = []
    names: dict[str, str] = {}
    sources: dict[str, list[str]] = {}
    for workload in pods:
        if isinstance(workload, Workload):
            own: list[str] = []
            new = created_pods(base, workload, None, own)
            check_names(new, workload.source, names, base)
            created += new
            for note in own:
                sources.setdefault(note.removeprefix(f"{workload.source}: "), []).append(workload.source)
    notes += [f"{_first(each)}: {note}" for note, each in sources.items()]
    for info in created:
        if info.pod.node_name:
            raise ConfigurationError([f"pod {info.pod.key}: spec.nodeName binds it to a node without a scheduler"])
    return waiting, created


def _first(sources: Sequence[str]) -> str:
    """Returns the first source, and how many more there are, so that a note about all of them appears once."""
    others = len(sources) - 1
    return f"{sources[0]} and {counted(others, 'other')}" if others else sources[0]


def _waiting(state: ClusterState, key: str) -> str:
    pod = state.info(key).pod
    if pod.node_name:
        raise ConfigurationError([f"pod {key} is on node {pod.node_name} already"])
    if pod.terminating:
        raise ConfigurationError([f"pod {key} is being deleted, so no scheduler tries it again"])
    return key


def _answer(
    state: ClusterState,
    targets: Sequence[str],
    found: Findings,
    options: SearchOptions,
    notes: list[str],
    *,
    room: Room | None = None,
    emptied: Sequence[str] = (),
) -> MovePlan:
    done = found.plan
    moves = done.moves if done is not None else []
    if found.is_interrupted:
        notes.append("interrupted: this is the best plan so far")
    if not (found.is_complete or solver.is_installed()):
        notes.append(solver.MISSING)
    placed = done.placed if done is not None else {}
    outcome: Outcome = "fits" if room is not None and room.before == MOST_ROOM else _outcome(found)
    has_plan = outcome in ("fits", "moves", "partial")
    sources = {move.source for move in moves}
    return MovePlan(
        outcome=outcome,
        pods=targets,
        room=room,
        emptied=emptied,
        moves=moves,
        placements=[Placement(key, placed[key]) for key in targets if key in placed],
        unplaced=[key for key in targets if key not in placed] if room is None else (),
        priorities=_priorities(found) if room is None and not emptied else (),
        smallest=has_plan and found.is_complete,
        bound=len(moves) if has_plan and found.is_complete else found.bound,
        gentlest=found.is_gentlest,
        fragmentation=-done.side.fragmentation if done is not None and moves else None,
        reason=None if found.places_all or outcome == "fits" else _reason(found, options),
        preempted=found.preempted,
        movable=found.movable,
        kept=dict(sorted(found.kept.items(), key=lambda item: (-item[1], item[0]))),
        notes=notes,
        evicted={move.pod: state.infos[move.pod].pod for move in moves},
        cordoned=sorted(name for name in sources if name in emptied or state.node(name).spec.unschedulable),
        waiting=frozenset(key for key in targets if key in state.infos),
    )


def _outcome(found: Findings) -> Outcome:
    if found.plan is not None and found.places_all:
        return "moves" if found.plan.moves else "fits"
    if found.plan is not None and found.plan.moves:
        return "partial"
    return "impossible" if found.proof is not None and found.is_complete else "unknown"


def _priorities(found: Findings) -> list[PlannedPriority]:
    placed = found.plan.score.placed if found.plan is not None else found.unmoved
    return [
        PlannedPriority(priority, count, *numbers)
        for (priority, count), *numbers in zip(found.levels.items(), found.unmoved, placed, found.at_most, strict=True)
    ]


def _reason(found: Findings, options: SearchOptions) -> str:
    if found.proof is not None:
        return found.proof
    if found.bound > options.moves:
        return f"{counted(found.bound, 'move')} would be needed at least, and no more than {options.moves} may be made"
    if found.is_complete:
        return _EXHAUSTED + (f"; for example, {found.refusal}" if found.refusal else "")
    least = f", and none has fewer than {found.bound} moves" if found.bound > 1 else ""
    if found.is_out_of_time:
        return f"none was found within {options.seconds:g} s{least}; --search gives it more time"
    return f"none was found among the evictions that were tried{least}"


def summary(plan: Planned) -> str:
    """Returns the outcome as a sentence such as `2 moves place shop/web-7; no plan has fewer`."""
    number = len(plan.moves)
    if plan.outcome == "fits":
        return f"no move is needed: {_without_moves(plan)}"
    if plan.outcome == "partial":
        best = "no plan is better" if plan.smallest else "a plan may be better"
        share = f"{len(plan.placements)} of {counted(len(plan.pods), 'pod')}"
        return f"{counted(number, 'move')} {'places' if number == 1 else 'place'} {share}; {best}: {plan.reason}"
    aim = f"place {listed(plan.unplaced or plan.pods, 2)}"
    if plan.emptied:
        aim = f"empty {listed(plan.emptied)}"
    elif plan.room is not None:
        aim = f"make room for {plan.room.shape}"
        if plan.room.before:
            aim = f"make room for more than the {plan.room.before} of {plan.room.shape} that fit now"
    if plan.outcome == "impossible":
        return f"no moves can {aim}: {plan.reason}"
    if plan.outcome == "unknown":
        return f"no moves are known that {aim}: {plan.reason}"
    if plan.room is not None:
        aim = f"make room for {plan.room.after - plan.room.before} more of {plan.room.shape}"
    verb, _, rest = aim.partition(" ")
    verb = verb + "s" if number == 1 and verb != "empty" else "empties" if number == 1 else verb
    least = "no plan has fewer" if plan.smallest else f"a plan may have fewer, but not less than {max(plan.bound, 1)}"
    return f"{counted(number, 'move')} {verb} {rest}; {least}{_most_room(plan)}"


def side_effects(plan: Planned) -> str:
    """Returns the fragmentation after the moves as a sentence, and how the plan compares with equally small ones.

    It is empty without moves, and if the plan is not about pods to place.
    """
    if not plan.moves or plan.emptied or plan.room is not None:
        return ""
    known = "no plan with as few moves is gentler" if plan.gentlest else "a plan with as few moves may be gentler"
    return f"fragmentation after the moves: {100 * (plan.fragmentation or 0):.2f} %; {known}"


def _without_moves(plan: Planned) -> str:
    if plan.emptied:
        return f"{listed(plan.emptied)} {'is' if len(plan.emptied) == 1 else 'are'} empty"
    if plan.room is not None:
        return f"at least {plan.room.before} of {plan.room.shape} fit now"
    return f"the scheduler places {listed(plan.pods, 2)}"


def _most_room(plan: Planned) -> str:
    """Returns what is known about plans that make more room; empty if the plan is not about room."""
    room = plan.room
    if room is None:
        return ""
    allowed = f"of at most {counted(room.allowed_moves, 'move')}"
    if room.most == room.after:
        return f", and none {allowed} makes room for more"
    more = "more" if room.most is None else f"up to {room.most - room.before} more"
    return f", but one {allowed} may make room for {more}"


def as_text(plan: Planned, *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: the moves, where pods are placed, and which pods may not be evicted."""
    most = None if every else MOST_ROWS
    yield printable(summary(plan))
    yield from (printable(f"note: {note}") for note in plan.notes)
    preempted = [(each.pod, each.node, each.cause) for each in plan.preempted]
    yield from section(("EVICTED BEFORE ANY MOVE", "FROM", "BECAUSE OF"), preempted, most, " pods")
    head, *steps = _steps(plan.moves)
    yield from section(head, steps, most, " steps")
    if side := side_effects(plan):
        yield ""
        yield side
    if plan.room is not None:
        by_node = sorted(Counter(each.node for each in plan.placements).items())
        rows = [(node, str(count)) for node, count in by_node]
        yield from section(("NODE", f"PODS OF {plan.room.shape}"), rows, most, " nodes")
    else:
        yield from section(("POD", "NODE"), [(each.pod, each.node) for each in plan.placements], most, " pods")
    if plan.unplaced and len(plan.pods) > 1:
        yield from section(("NOT PLACED",), [(key,) for key in plan.unplaced], most, " pods")
        head = ("PRIORITY", "PODS", "WITHOUT MOVES", "WITH MOVES", "AT MOST")
        yield from section(head, [tuple(map(str, msgspec.structs.astuple(level))) for level in plan.priorities])
    if plan.outcome != "fits":
        kept = [(str(count), f"each {reason}") for reason, count in plan.kept.items()]
        yield from section(("PODS THAT STAY", "BECAUSE"), kept)


def _steps(moves: Sequence[Move]) -> Iterator[Cells]:
    """Yields a table of the moves, with a column for each of the things that only some moves need, if any does."""
    columns: dict[str, Sequence[Sequence[str]]] = {
        "CORDONED FOR THIS STEP": [move.cordoned for move in moves],
        "AFTER UNCORDONING": [move.uncordoned for move in moves],
        "THEN UNCORDON": [move.released for move in moves],
        "THEN PLACED": [[f"{each.pod} on {each.node}" for each in move.placements] for move in moves],
    }
    shown = {title: column for title, column in columns.items() if any(column)}
    yield "STEP", "EVICT", "FROM", "NEW NODE", *shown
    for number, move in enumerate(moves):
        more = [", ".join(column[number]) for column in shown.values()]
        yield str(number + 1), move.pod, move.source, move.target, *more


def find_moves(state: ClusterState, key: str) -> KnownMoves | None:
    """Returns what a short search finds about moves that let the pod `namespace/name` run; None if none do.

    The number of plans that it tries depends on the cluster only, so the answer is the same each time. A large cluster
    is not copied for it, and in a cluster with many waiting pods each try is dear, because every pod is tried again.
    """
    tries = _MOST_DECISIONS // (len(state.pending) + 2)
    if len(state.infos) > _MOST_PODS or not tries:
        return KnownMoves(None, 1)
    found = Search(state, [key], [], SearchOptions(seconds=_FOREVER, uses_solver=False, tries=tries)).run()
    if found.is_complete and not found.places_all:
        return None
    enough = len(found.moves) if found.places_all else 0  # without a move if pods of others are preempted for it
    return KnownMoves(enough or None, max(found.bound, 1))
