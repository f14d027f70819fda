"""What a pod needs on its node besides room: reserved with the decision, written and awaited before the Binding.

Source: upstream extension points Reserve, Permit, PreBind, Unreserve.
"""

from __future__ import annotations

from typing import Protocol

from extender.errors import BindingFailed
from extender.scheduler.scheduling_cycle import Chosen
from extender.table import PodInfo


class Awaited(Protocol):
    """Something that a pod waits for between the decision and its Binding."""

    @property
    def timeout_seconds(self) -> float:
        """How long it may take."""

    def ready(self) -> bool:
        """Whether it is there; asked now and then, by one thread at a time.

        Raises:
            BindingFailed: it never will be.
        """

    def overdue(self) -> BindingFailed:
        """What it means that it has taken longer."""


class Permit(Protocol):
    """A rule that may hold a pod back, or turn it away, when all is decided."""

    def permit(self, pod: PodInfo, node_name: str) -> Awaited | None:
        """What the pod has to wait for; None: nothing.

        Raises:
            BindingFailed: it must not be bound.
        """


class Reservation(Awaited, Protocol):
    """Something that is kept for one pod on one node, known to nobody else until it is written."""

    def take(self) -> None:
        """Keeps it from now on.

        Raises:
            Outdated: it can be had no more; a part of it may be kept until `undo`.
        """

    def write(self) -> None:
        """Tells the API server.

        Raises:
            ClusterError: it is not, or perhaps not, or partly written.
        """

    def undo(self) -> None:
        """Keeps it no longer, and takes back what was written as far as that may be. Raises nothing."""


class Reserver(Protocol):
    """Keeps one kind of thing for pods."""

    def reserve(self, pod: PodInfo, chosen: Chosen) -> Reservation | None:
        """What is to be kept for the pod, not taken yet; None: it needs nothing of that kind."""
