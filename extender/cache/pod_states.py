"""Defines the states of a pod in the cache, with the transitions between them, and keeps pods in these states.

            Assume              Finish binding
    INITIAL ------> ASSUMED ------------------> FINISHED
      | ^ ^            | |                        | | |
      | | '--- Forget -' '------- Add ----. .-----' | '-- Forget, Expire, Remove --> INITIAL
      | |                                 v v    Add
      | '----------- Remove ------------ ADDED  (Update, Finish binding: ADDED)
      '----------------- Add --------------^

An assumed pod stays on its node until the watch confirms it (Add), its bind fails (Forget), or its time to live ends
(Expire). The time to live starts when the bind has finished. If the outcome of a bind is unknown, the bind may be
repeated and finish again; the pod stays FINISHED. Source: upstream backend/cache/interface.go; the state FINISHED is
upstream's flag bindingFinished.
"""

from __future__ import annotations

from enum import StrEnum, auto
from typing import NamedTuple

from extender.errors import IllegalTransition
from extender.runtime.ports import Annotations
from extender.table import PodInfo


class PodState(StrEnum):
    INITIAL = auto()
    """The pod is not on a node, or not in the cache."""
    ASSUMED = auto()
    """The pod is assumed on its node while it is being bound."""
    FINISHED = auto()
    """The bind has succeeded or its outcome is unknown, and the watch has not shown the pod on its node yet."""
    ADDED = auto()
    """The watch shows the pod on its node."""


class PodEvent(StrEnum):
    ASSUME = auto()
    FINISH_BINDING = auto()
    FORGET = auto()
    EXPIRE = auto()
    ADD = auto()
    UPDATE = auto()
    REMOVE = auto()


TRANSITIONS = {
    (PodState.INITIAL, PodEvent.ASSUME): PodState.ASSUMED,
    (PodState.INITIAL, PodEvent.ADD): PodState.ADDED,
    (PodState.ASSUMED, PodEvent.FINISH_BINDING): PodState.FINISHED,
    (PodState.ASSUMED, PodEvent.FORGET): PodState.INITIAL,
    (PodState.ASSUMED, PodEvent.ADD): PodState.ADDED,
    (PodState.ASSUMED, PodEvent.REMOVE): PodState.INITIAL,
    (PodState.FINISHED, PodEvent.FINISH_BINDING): PodState.FINISHED,  # a bind whose outcome is unknown was repeated
    (PodState.FINISHED, PodEvent.FORGET): PodState.INITIAL,
    (PodState.FINISHED, PodEvent.EXPIRE): PodState.INITIAL,
    (PodState.FINISHED, PodEvent.ADD): PodState.ADDED,
    (PodState.FINISHED, PodEvent.REMOVE): PodState.INITIAL,
    (PodState.ADDED, PodEvent.FINISH_BINDING): PodState.ADDED,  # the watch event arrived before the answer to the bind
    (PodState.ADDED, PodEvent.UPDATE): PodState.ADDED,
    (PodState.ADDED, PodEvent.REMOVE): PodState.INITIAL,
}


def after(state: PodState, event: PodEvent) -> PodState:
    """Returns the state after `event`. Raises IllegalTransition if the event is not possible in this state."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"the event {event.name} is not allowed for a pod in the state {state.name}") from None


class PodPlacement(NamedTuple):
    """A pod on a node, assumed or confirmed.

    Attributes:
        certain: False if the outcome of the bind is unknown.
        annotations: what users' Bind rules chose for the pod. Until the watch confirms the pod, `info` has it too.
        expires_at: when the pod expires if the watch has not confirmed it, in monotonic seconds; None means never.
    """

    info: PodInfo
    node_name: str
    state: PodState
    certain: bool = True
    expires_at: float | None = None
    annotations: Annotations = ()


def is_bound(placement: PodPlacement | None, node_name: str) -> bool | None:
    """Returns True if the watch shows the pod on this node, False if it shows otherwise, None while it shows nothing.

    `placement` is the pod's present placement, None if it has none.
    """
    if placement is not None and placement.state is not PodState.ADDED:
        return None
    return placement is not None and placement.node_name == node_name


class Placements:
    """All pods on nodes, by UID. Raises IllegalTransition for a change that pod_states.TRANSITIONS does not contain."""

    def __init__(self) -> None:
        self._placements: dict[str, PodPlacement] = {}
        # A separate dict, because Expiry often reads the unconfirmed placements.
        self._unconfirmed: dict[str, PodPlacement] = {}

    def __len__(self) -> int:
        return len(self._placements)

    def __contains__(self, uid: str) -> bool:
        return uid in self._placements

    def get(self, uid: str) -> PodPlacement | None:
        return self._placements.get(uid)

    def state(self, uid: str) -> PodState:
        """Returns the state of the pod; INITIAL if it has no node."""
        placement = self._placements.get(uid)
        return placement.state if placement else PodState.INITIAL

    def by_uid(self) -> dict[str, PodPlacement]:
        """Returns a copy of all placements by UID."""
        return self._placements.copy()

    def unconfirmed(self) -> list[PodPlacement]:
        """Returns the placements that the watch has not confirmed."""
        return list(self._unconfirmed.values())

    def unconfirmed_by_node(self) -> dict[str, list[str]]:
        """Returns, by node name, the UIDs of the assumed pods that the watch has not confirmed yet."""
        uids: dict[str, list[str]] = {}
        for placement in self._unconfirmed.values():
            uids.setdefault(placement.node_name, []).append(placement.info.uid)
        return uids

    def confirmed(self) -> set[str]:
        """Returns the UIDs of the pods that the watch has shown on their nodes."""
        return self._placements.keys() - self._unconfirmed.keys()

    def overdue(self, now: float) -> list[str]:
        """Returns the UIDs of the pods whose time to live has ended by `now`."""
        return [
            uid
            for uid, placement in self._unconfirmed.items()
            if placement.expires_at is not None and placement.expires_at <= now
        ]

    def assume(self, info: PodInfo, node_name: str, annotations: Annotations = ()) -> None:
        """Assumes the pod on the node, before its bind. From then on, readers see it with these annotations."""
        state = after(self.state(info.uid), PodEvent.ASSUME)
        self._put(PodPlacement(info.annotated(annotations), node_name, state, annotations=annotations))

    def finish_binding(self, uid: str, *, certain: bool, expires_at: float | None) -> None:
        """Sets when the pod expires, unless the watch has confirmed it already."""
        state = after(self.state(uid), PodEvent.FINISH_BINDING)
        placement = self._placements[uid]
        if state is PodState.FINISHED:
            self._put(placement._replace(state=state, certain=certain, expires_at=expires_at))

    def confirm(self, info: PodInfo) -> None:
        """Confirms the pod on the node where the watch shows it. Its annotations are those that the watch shows."""
        before, state = self._placements.get(info.uid), self.state(info.uid)
        event = PodEvent.UPDATE if state is PodState.ADDED else PodEvent.ADD
        annotations = before.annotations if before is not None else ()
        self._put(PodPlacement(info, info.pod.node_name, after(state, event), annotations=annotations))

    def update_info(self, info: PodInfo) -> None:
        """Replaces the stored version of the pod, if the pod is on a node; it keeps what Bind rules chose."""
        if (placement := self._placements.get(info.uid)) is not None:
            is_confirmed = placement.state is PodState.ADDED
            self._put(placement._replace(info=info if is_confirmed else info.annotated(placement.annotations)))

    def remove(self, uid: str, event: PodEvent) -> PodPlacement:
        """Removes the pod from its node; returns the placement it had."""
        after(self.state(uid), event)
        self._unconfirmed.pop(uid, None)
        return self._placements.pop(uid)

    def _put(self, placement: PodPlacement) -> None:
        uid = placement.info.uid
        self._placements[uid] = placement
        if placement.state is PodState.ADDED:
            self._unconfirmed.pop(uid, None)
        else:
            self._unconfirmed[uid] = placement
