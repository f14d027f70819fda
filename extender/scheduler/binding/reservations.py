"""Reservations of what a pod needs besides node resources: taken with the decision, written and awaited later.

Source: upstream extension points Reserve, PreBind, Unreserve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from extender.errors import BindingFailed
from extender.scheduler.scheduling_cycle import Chosen
from extender.table import PodInfo


class Awaited(Protocol):
    """Something that a pod may have to wait for before it is bound."""

    @property
    def timeout_seconds(self) -> float:
        """The longest time until it is ready."""

    def ready(self) -> bool:
        """Returns True if it is ready; called repeatedly, by one thread at a time.

        Raises:
            BindingFailed: it will never be ready.
        """

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited longer than `timeout_seconds`."""


class Reservation(Awaited, Protocol):
    """Something reserved for one pod on one node; only this process knows it until it is written.

    Attributes:
        plugin: the upstream plugin that does this.
    """

    plugin: str

    def take(self) -> None:
        """Reserves it. Raises Outdated if it is no longer available; `undo` then releases what was already taken."""

    def write(self) -> None:
        """Writes it to the API server. Raises ClusterError; parts of it may be written then."""

    def undo(self) -> None:
        """Releases it, and reverts what was written as far as possible. Raises nothing."""


class Reserver(Protocol):
    """Reserves one kind of thing for pods."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> Reservation | None:
        """Returns the reservation for the pod, not taken yet, None if it needs nothing of this kind."""


def undo(reservations: Sequence[Reservation]) -> None:
    """Undoes all reservations in reverse order, even if one raises; then raises the first error.

    After an error something stays reserved that nothing else releases, so the process has to end.
    """
    errors: list[Exception] = []
    for reservation in reversed(reservations):
        try:
            reservation.undo()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
