"""The nominations that are decided here and not yet, or no longer, in the pods' statuses.

Source: upstream backend/queue/nominator.go, where the queue owns them.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.table import PodInfo


class _Decision(NamedTuple):
    """The pod with the nomination that was decided, and what its status said at the time."""

    info: PodInfo
    status: str


class DecidedNominations:
    """Decisions by UID; each stands until the pod's status says something else than it did."""

    def __init__(self) -> None:
        self._decisions: dict[str, _Decision] = {}

    def decide(self, info: PodInfo, node_name: str) -> None:
        """Nominates the pod, given as the watch describes it, to the node; "": to none."""
        status = info.pod.status.nominated_node_name
        self._decisions[info.uid] = _Decision(PodInfo(info.pod.nominated_to(node_name)), status)

    def told(self, info: PodInfo) -> None:
        """Takes in how the watch describes the pod now."""
        decision = self._decisions.pop(info.uid, None)
        if decision and not info.pod.node_name and info.pod.status.nominated_node_name == decision.status:
            self.decide(info, decision.info.pod.status.nominated_node_name)

    def effective(self, info: PodInfo) -> PodInfo:
        """Returns the pod, given as the watch describes it, with the nomination that counts."""
        decision = self._decisions.get(info.uid)
        return info if decision is None else decision.info

    def drop(self, uid: str) -> None:
        """Forgets the decision, if there is one."""
        self._decisions.pop(uid, None)
