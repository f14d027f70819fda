"""Defines reservations of volumes and devices. They are made with the decision, and written later.

Source: upstream extension points Reserve, PreBind, Unreserve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from extender.engine.decision import Chosen
from extender.errors import BindingFailed
from extender.framework.plugin import error_prefix
from extender.scheduler.timing import PRE_BIND
from extender.table import PodInfo


class Awaited(Protocol):
    """Something that a pod may have to wait for before it is bound, such as volumes or devices."""

    @property
    def timeout_seconds(self) -> float:
        """The longest time, in seconds, that the pod may wait until `ready` returns True."""

    def ready(self) -> bool:
        """Returns True if the pod need not wait any longer. Called repeatedly, by one thread at a time.

        Raises:
            BindingFailed: the pod would wait in vain.
        """

    def overdue(self) -> BindingFailed:
        """Returns the error for a pod that has waited longer than `timeout_seconds`."""


class Reservation(Awaited, Protocol):
    """Volumes or devices reserved for one pod on one node. Only this process knows them until `write`.

    Attributes:
        plugin: the name of the upstream plugin that makes such reservations.
    """

    plugin: str

    def take(self) -> None:
        """Makes the reservation in the cache.

        Raises Outdated if something is no longer available. The caller then calls `undo`, because a part may be
        reserved.
        """

    def write(self) -> None:
        """Writes the reservation to the API server. If it raises ClusterError, a part may have been written."""

    def undo(self) -> None:
        """Releases the reservation, and reverts its writes as far as possible. It must not raise."""


class Reserver(Protocol):
    """Makes reservations of one kind, such as volumes or devices."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> Reservation | None:
        """Returns the reservation that the pod needs, or None. The reservation takes effect when `take` is called."""


def pre_bind_failed(plugin: str, message: str) -> BindingFailed:
    """Returns the error for a pod whose reservation by this plugin can no longer be completed."""
    return BindingFailed(error_prefix(PRE_BIND, plugin) + message)


def undo(reservations: Sequence[Reservation]) -> None:
    """Undoes all reservations in reverse order, even if one of them raises; then raises the first error.

    After an error, something may stay reserved, so the caller leaves the pod on its node until it expires.
    """
    errors: list[Exception] = []
    for reservation in reversed(reservations):
        try:
            reservation.undo()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
