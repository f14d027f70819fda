"""The life of a pod in the cache, as one table.

            Assume              Finish binding
    INITIAL ------> ASSUMED ------------------> FINISHED
      | ^ ^            | |                        | | |
      | | '--- Forget -' '------- Add ----. .-----' | '-- Forget, Expire, Remove --> INITIAL
      | |                                 v v    Add
      | '----------- Remove ------------ ADDED  (Update, Finish binding: ADDED)
      '----------------- Add --------------^

A pod that was assumed holds its place on the node until the watch confirms it (Add), the bind fails (Forget), or, once
the bind has finished, its time to live is over (Expire). A bind of unknown outcome that is tried again finishes again:
FINISHED stays. Source: upstream backend/cache/interface.go; FINISHED is its
bindingFinished flag, as a state of its own.
"""

from __future__ import annotations

from enum import Enum, auto

from extender.errors import IllegalTransition


class PodState(Enum):
    INITIAL = auto()
    """Not in the cache, or not on a node."""
    ASSUMED = auto()
    """Counted on its node while the bind is under way."""
    FINISHED = auto()
    """The bind has ended, well or unknown, and the watch has not told yet."""
    ADDED = auto()
    """Seen on its node by the watch."""


class PodEvent(Enum):
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
    (PodState.FINISHED, PodEvent.FINISH_BINDING): PodState.FINISHED,  # tried again, for the outcome was unknown
    (PodState.FINISHED, PodEvent.FORGET): PodState.INITIAL,
    (PodState.FINISHED, PodEvent.EXPIRE): PodState.INITIAL,
    (PodState.FINISHED, PodEvent.ADD): PodState.ADDED,
    (PodState.FINISHED, PodEvent.REMOVE): PodState.INITIAL,
    (PodState.ADDED, PodEvent.FINISH_BINDING): PodState.ADDED,  # the watch was faster than the answer
    (PodState.ADDED, PodEvent.UPDATE): PodState.ADDED,
    (PodState.ADDED, PodEvent.REMOVE): PodState.INITIAL,
}


def after(state: PodState, event: PodEvent) -> PodState:
    """Returns the state that `event` leads to. Raises IllegalTransition: the table has no such row."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"a pod that is {state.name} cannot take {event.name}") from None
