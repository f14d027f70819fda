"""The pods that wait for a place on a certain node, which preemption makes for them.

What is decided here may be ahead of the pods' status. Source: upstream backend/queue/nominator.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.table import PodInfo


class Nominator:
    """Which pod is nominated to run where; no pod twice."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """The pod is to run on `node_name`, and nowhere else it may have been nominated to; empty: nowhere."""
        self.withdraw(info.uid)
        if node_name:
            self._node_of[info.uid] = node_name
            self._pods.setdefault(node_name, {})[info.uid] = info

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """The pod was modified: its status decides, unless it never said anything and still does not.

        Then the nomination is younger than the status, and stays.
        """
        before, after = old.pod.status.nominated_node_name, new.pod.status.nominated_node_name
        self.nominate(new, after if before or after else self._node_of.get(old.uid, ""))

    def withdraw(self, uid: str) -> None:
        """The pod is nominated nowhere any more."""
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        del self._pods[node_name][uid]
        if not self._pods[node_name]:
            del self._pods[node_name]

    def node_of(self, uid: str) -> str:
        """Where the pod is nominated to run; empty: nowhere."""
        return self._node_of.get(uid, "")

    def on_node(self, node_name: str) -> list[PodInfo]:
        """The pods nominated to run there."""
        return list(self._pods.get(node_name, {}).values())

    @property
    def nodes(self) -> Mapping[str, str]:
        """UID -> node, of all nominated pods."""
        return self._node_of
