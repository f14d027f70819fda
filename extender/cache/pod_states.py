"""Defines the states of a pod in the cache, and a table of the transitions between them.

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

from extender.errors import IllegalTransition


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
