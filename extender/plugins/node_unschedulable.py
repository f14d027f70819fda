"""NodeUnschedulable: only pods that tolerate cordoned nodes may be placed there. Source: upstream nodeunschedulable."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import Arguments, Plugin
from extender.framework.queueing_hints import Interest, Interests
from extender.framework.rules import Check, PerNode, RowCheck
from extender.framework.status import unresolvable
from extender.model.node import NO_SCHEDULE, UNSCHEDULABLE_TAINT, tolerates, untolerated
from extender.table import PodInfo, Table

NAME = "NodeUnschedulable"
REFUSAL = unresolvable(NAME, "node(s) were unschedulable")


@dataclass(frozen=True, slots=True)
class NodeUnschedulable(PerNode):
    """Refuses cordoned nodes, unless the pod tolerates the taint node.kubernetes.io/unschedulable."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if not table.nodes.cordoned:
            return None
        tolerations = pod.pod.spec.tolerations or ()
        if not untolerated((UNSCHEDULABLE_TAINT,), tolerations, (NO_SCHEDULE,)):
            return None
        unschedulable = table.nodes.unschedulable
        return RowCheck(lambda rows: [(unschedulable[rows], REFUSAL)])


def node_opens(_pod: PodInfo, change: Change) -> bool:
    """Returns True if the node was uncordoned, or is new and not cordoned."""
    return not change.new.spec.unschedulable and (change.old is None or bool(change.old.spec.unschedulable))


def pod_tolerates_unschedulable(_pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod now tolerates the taint of cordoned nodes."""
    tolerations = change.new.pod.spec.tolerations or ()
    return any(tolerates(toleration, UNSCHEDULABLE_TAINT) for toleration in tolerations)


PLUGIN = Plugin(
    NAME,
    Arguments,
    lambda _: NodeUnschedulable(),
    interests=Interests(
        (
            Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, node_opens),
            Interest(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, pod_tolerates_unschedulable),
        )
    ),
)
