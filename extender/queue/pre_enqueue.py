"""The rules that a pod must pass before it may be tried at all."""

from __future__ import annotations

from typing import Protocol

from extender.table import PodInfo

SCHEDULING_GATES = "SchedulingGates"


class PreEnqueue(Protocol):
    """A rule that keeps pods out of the active queue (upstream PreEnqueuePlugin); asked under the queue's lock."""

    @property
    def name(self) -> str: ...

    def admits(self, pod: PodInfo) -> bool:
        """Whether the pod may be tried."""
        ...


class SchedulingGates:
    """A pod with scheduling gates waits until all of them are gone (KEP-3521)."""

    name = SCHEDULING_GATES

    def admits(self, pod: PodInfo) -> bool:
        return not pod.pod.spec.scheduling_gates
