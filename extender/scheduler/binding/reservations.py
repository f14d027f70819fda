"""Defines reservations of volumes and devices: taken with the decision, written and awaited later.

Source: upstream extension points Reserve, PreBind, Unreserve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from extender.errors import BindingFailed
from extender.scheduler.scheduling_cycle import Chosen
from extender.table import PodInfo


class Awaited(Protocol):
    """Something, such as volumes or devices, that a pod may have to wait for before it is bound."""

    @property
    def timeout_seconds(self) -> float:
        """The longest time to wait."""

    def ready(self) -> bool:
        """Returns True if the pod need not wait any longer; called repeatedly, by one thread at a time.

        Raises:
            BindingFailed: waiting longer is useless.
        """

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited longer than `timeout_seconds`."""


class Reservation(Awaited, Protocol):
    """Volumes or devices reserved for one pod on one node; known only to this process until `write`.

    Attributes:
        plugin: the name of the upstream plugin that makes such reservations.
    """

    plugin: str

    def take(self) -> None:
        """Makes the reservation in the cache.

        Raises Outdated if something is no longer available; `undo` then releases what was already reserved.
        """

    def write(self) -> None:
        """Writes the reservation to the API server. Raises ClusterError, perhaps after writing a part of it."""

    def undo(self) -> None:
        """Releases the reservation, and reverts its writes as far as possible. Raises nothing."""


class Reserver(Protocol):
    """Makes reservations of one kind for pods: of volumes, or of devices."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> Reservation | None:
        """Returns what the caller is to reserve for the pod. None if the pod needs nothing of this kind."""


def undo(reservations: Sequence[Reservation]) -> None:
    """Undoes all reservations in reverse order, even if one raises; then raises the first error.

    After an error, something stays reserved that nothing else will release, so the process has to end.
    """
    errors: list[Exception] = []
    for reservation in reversed(reservations):
        try:
            reservation.undo()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
