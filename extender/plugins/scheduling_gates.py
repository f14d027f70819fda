"""SchedulingGates: a pod waits until its scheduling gates are removed (KEP-3521). Source: upstream schedulinggates."""

from __future__ import annotations

from extender.framework.events.cluster_events import Action, Resource
from extender.framework.events.queueing_hints import Interest, Interests
from extender.framework.plugin import Arguments, Plugin
from extender.table import PodInfo

NAME = "SchedulingGates"


class SchedulingGates:
    """Keeps pods with scheduling gates out of the active queue (PreEnqueue)."""

    name = NAME

    def admits(self, pod: PodInfo) -> bool:
        return not pod.pod.spec.scheduling_gates


PLUGIN = Plugin(
    NAME,
    Arguments,
    points=frozenset(("preEnqueue",)),
    interests=Interests((Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),)),
)
