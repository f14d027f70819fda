"""Defines the decision about a pod: what `decide` returns to the loop, to pod groups and to the offline answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.devices.plan import DevicePlan
from extender.errors import BindingFailed, ExtenderError
from extender.framework.find_fit import Fit, Scoring
from extender.framework.status import NO_REJECTION, Refusal, Rejection
from extender.model.devices import ResourceClaim
from extender.model.pod import Pod
from extender.model.pod_groups import SchedulingGroup
from extender.plugins.volume_binding import VolumePlan
from extender.preemption.evaluator import Preemption
from extender.runtime.ports import Annotations, NominatedNode, Nominating
from extender.table import PodInfo
from extender.table.labels import Rows

IntArray = NDArray[np.int64]

POD_UNSCHEDULABLE = "Unschedulable"
POD_SCHEDULER_ERROR = "SchedulerError"
ANYWHERE = "cluster"  # a group's victims are on several nodes, so upstream writes this instead of a node's name
NOTHING_TO_BIND = VolumePlan()
NOTHING_TO_ALLOCATE = DevicePlan()
NO_ROWS: Rows = np.zeros(0, np.intp)
NO_SCORES = Scoring(NO_ROWS, np.zeros(0, np.int64), ())


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits for a pod: until its volumes are bound, and until its devices are ready."""

    volumes_seconds: float = 600
    devices_seconds: float = 600


@dataclass(frozen=True, slots=True)
class Chosen:
    """The node chosen for a pod, the writes that its claims need before the bind, and the annotations of the bind."""

    node_name: str
    volumes: VolumePlan = NOTHING_TO_BIND
    devices: DevicePlan = NOTHING_TO_ALLOCATE
    timeouts: Timeouts = Timeouts()
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The evictions that free resources for a preemptor on one node.

    Attributes:
        victims: the pods to evict, in this order.
        outranked: pods of lower priority that lose their nomination to the node.
        group: the pod group for which the pods are evicted; None if the preemptor is a single pod.
        pdb_violations: the number of victims whose eviction violates a PodDisruptionBudget.
        disruptions: see `GroupPreemption`. As in upstream, empty if the preemptor is a single pod.
    """

    node_name: str
    victims: Sequence[PodInfo]
    outranked: Sequence[PodInfo] = ()
    group: SchedulingGroup | None = None
    pdb_violations: int = 0
    disruptions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt to schedule or bind a pod, and what follows from it.

    Attributes:
        message: the message for users, in kube-scheduler's words.
        rejection: the plugins that rejected the pod; empty after an error.
        preemption: the evictions that would help the pod; None if none would.
        nominated_node: the node to nominate the pod to; KEEP or CLEAR keeps or ends its present nomination.
        idle_claim: a claim that no other pod uses, and that should get other devices, because the pod fits nowhere with
            the present ones; None if there is no such claim.
        search_seconds: how long preemption searched for pods to evict; None if it did not search.
        gave_way: True if the attempt ended because other pods waited.
    """

    message: str
    rejection: Rejection = NO_REJECTION
    preemption: EvictionPlan | None = None
    nominated_node: NominatedNode = Nominating.CLEAR
    idle_claim: ResourceClaim | None = None
    search_seconds: float | None = None
    gave_way: bool = False

    @property
    def node_to_nominate(self) -> str:
        """The node to nominate the pod to; "" if `nominated_node` is KEEP or CLEAR."""
        return self.nominated_node if isinstance(self.nominated_node, str) else ""

    @property
    def reason(self) -> str:
        """The reason in the pod's PodScheduled condition."""
        return POD_UNSCHEDULABLE if self.rejection.rules else POD_SCHEDULER_ERROR


def rejected(error: BindingFailed) -> Failure:
    """Returns the failure of a pod that a rule from Reserve to Bind rejected on its node.

    If the error names a plugin, the pod waits for an event that may help it. If not, it is retried after its backoff.
    """
    if not error.plugin:
        return Failure(str(error))
    return Failure(f"0/1 nodes are available: 1 {error}.", Rejection(unschedulable=frozenset((error.plugin,))))


class RefusedNodes(NamedTuple):
    """A refusal, and the names of all nodes that gave it."""

    refusal: Refusal
    nodes: list[str]


@dataclass(frozen=True, slots=True)
class PluginScore:
    """The scores of one priority, in the order of `Decision.feasible`: int64[len(feasible)] each.

    Attributes:
        plugin: the name of the plugin.
        weight: the factor by which its scores are multiplied in the total.
        raw: the scores before normalisation, in the plugin's own unit.
        normalised: the scores scaled to 0..100.
    """

    plugin: str
    weight: int
    raw: IntArray
    normalised: IntArray

    @property
    def weighted(self) -> IntArray:
        """The points that the plugin adds to the total of each node: `normalised * weight`."""
        return self.normalised * self.weight


@dataclass(eq=False, repr=False)
class Decision:
    """The decision about one pod: the outcome for the scheduler, and what each node and plugin contributed to it.

    It keeps the arrays of the decision, and builds lists of names and dictionaries only when they are first read,
    because that would be slow for thousands of nodes. The scheduling loop looks at no more nodes than it needs, and
    reads only the outcome.

    Attributes:
        pod: the pod that was judged; a pod that is on a node is judged as if it were waiting.
        outcome: the chosen node, or the failure. Of several best nodes, the scheduler chooses one at random.
        preemption: the outcome of preemption, or None if it was not tried. It has `candidates` (the nodes where
            evictions would help, with the victims), the `nominated_node`, or the `reason` why evictions do not help.
        cause: the exception that ended the attempt; None if there was none.
    """

    pod: Pod
    _node_names: Sequence[str]
    outcome: Chosen | Failure
    _fit: Fit
    _scoring: Scoring = NO_SCORES
    preemption: Preemption | None = None
    cause: ExtenderError | None = None

    def __repr__(self) -> str:
        return f"Decision({self.pod.key}: {len(self._scoring.rows)} of {len(self._fit.rows)} nodes feasible)"

    @property
    def message(self) -> str:
        """The verdict as the scheduler writes it into the pod's condition."""
        feasible = len(self._scoring.rows)
        if not feasible and isinstance(self.outcome, Failure):
            return self.outcome.message
        return f"{feasible}/{len(self._fit.rows)} nodes are available"

    @cached_property
    def nodes(self) -> list[str]:
        """The names of the nodes that were considered, feasible or not."""
        return self._named(self._fit.rows)

    @property
    def error(self) -> Refusal | None:
        """The error because of which no node is feasible; None if there was no such error.

        The error comes from a filter on any node, or from a plugin that cannot score the pod.
        """
        return None if len(self._scoring.rows) else self._fit.error

    @cached_property
    def feasible(self) -> list[str]:
        """The nodes that can take the pod; none if the attempt ends in an error."""
        return self._named(self._scoring.rows)

    @cached_property
    def refusals(self) -> dict[str, Refusal]:
        """Node name -> the first refusal on this node, with its `plugin`, `code` and `reasons`.

        `plugin` is empty if the node was not examined, because the plugins in `limited_by` allow only other nodes.
        """
        return {self._node_names[row]: refusal for row, refusal in self._fit.refused()}

    @cached_property
    def refused_nodes(self) -> list[RefusedNodes]:
        """The distinct refusals, each with the nodes that gave it."""
        rows, cause = self._fit.rows, self._fit.cause
        grouped = [RefusedNodes(each, self._named(rows[cause == i])) for i, each in enumerate(self._fit.refusals)]
        return [group for group in grouped if group.nodes]

    @cached_property
    def reasons(self) -> Counter[str]:
        """The number of nodes that refuse the pod, for each reason."""
        counts: Counter[str] = Counter()
        for refusal, nodes in self.refused_nodes:
            counts.update(dict.fromkeys(refusal.reasons, len(nodes)))
        return counts

    @property
    def limited_by(self) -> Sequence[str]:
        """The plugins that limited the pod to certain nodes before any node was examined."""
        return self._fit.narrowed_by

    @cached_property
    def scores(self) -> dict[str, PluginScore]:
        """The scores of each plugin. Plugins that do not apply to the pod are left out, because they add no points."""
        return {
            scored.plugin: PluginScore(scored.plugin, scored.weight, scored.raw, scored.scores)
            for scored in self._scoring.by_plugin
        }

    @property
    def total(self) -> IntArray:
        """The total points of each node, over all plugins, in the order of `feasible`: int64[len(feasible)]."""
        return self._scoring.total

    @property
    def nominated(self) -> str | None:
        """The node that the pod is nominated to, if it can take the pod; the scheduler takes it without scoring."""
        name = self.pod.status.nominated_node_name
        return name if name in self.feasible else None

    @cached_property
    def best(self) -> list[str]:
        """The nominated node, else the nodes with the highest total, of which the scheduler picks one at random."""
        if self.nominated is not None:
            return [self.nominated]
        if not len(self.total):
            return []
        return self._named(self._scoring.rows[self.total == self.total.max()])

    def _named(self, rows: Rows) -> list[str]:
        return [self._node_names[row] for row in rows.tolist()]
