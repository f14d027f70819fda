"""Reservations of what a pod needs besides room: taken with the decision, written and awaited before the Binding.

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
        """Returns whether the pod need not wait for it; asked now and then, by one thread at a time.

        Raises:
            BindingFailed: it never will be.
        """

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited longer than `timeout_seconds`."""


class Reservation(Awaited, Protocol):
    """Something that is reserved for one pod on one node, known to nobody else until it is written.

    Attributes:
        plugin: the plugin whose part this is upstream.
    """

    plugin: str

    def take(self) -> None:
        """Reserves it. Raises Outdated: it can be had no more; a part of it may be taken until `undo`."""

    def write(self) -> None:
        """Writes it to the API server. Raises ClusterError: it is not, or perhaps not, or partly written."""

    def undo(self) -> None:
        """Gives it up, and takes back what was written as far as that may be. Raises nothing."""


class Reserver(Protocol):
    """Reserves one kind of thing for pods."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> Reservation | None:
        """Returns what is to be reserved for the pod, not taken yet; None: it needs nothing of that kind."""


def undo(reservations: Sequence[Reservation]) -> None:
    """Undoes them all, the last first, even if one raises; then raises the first error.

    An error leaves something reserved that nothing else gives back, so the process has to end.
    """
    errors: list[Exception] = []
    for reservation in reversed(reservations):
        try:
            reservation.undo()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
