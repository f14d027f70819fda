"""The nominations that are decided here and not yet, or no longer, in the pods' statuses.

Source: upstream backend/queue/nominator.go, where the queue owns them.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.table import PodInfo


class _Decision(NamedTuple):
    """The node, "" for none, and what the pod's status said when it was decided."""

    node_name: str
    status: str


class DecidedNominations:
    """Decisions by UID; each stands until the pod's status says something else than it did."""

    def __init__(self) -> None:
        self._decisions: dict[str, _Decision] = {}

    def decide(self, info: PodInfo, node_name: str) -> PodInfo:
        """Nominates the pod, which is given as `effective` made it; returns it with its new nomination."""
        nominated = info.pod.status.nominated_node_name
        known = self._decisions.get(info.uid)
        self._decisions[info.uid] = _Decision(node_name, known.status if known else nominated)
        return info if nominated == node_name else PodInfo(info.pod.nominated_to(node_name))

    def effective(self, info: PodInfo) -> PodInfo:
        """Returns the pod, given as the watch describes it, with the nomination that counts."""
        decision = self._decisions.get(info.uid)
        if decision is None:
            return info
        if info.pod.node_name or info.pod.status.nominated_node_name != decision.status:
            self.drop(info.uid)
            return info
        return PodInfo(info.pod.nominated_to(decision.node_name))

    def drop(self, uid: str) -> None:
        """Forgets the decision, if there is one."""
        self._decisions.pop(uid, None)
