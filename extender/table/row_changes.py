"""Which node rows have changed since when: what was worked out of the others still holds."""

from __future__ import annotations

from collections.abc import Collection

_MOST_KEPT = 4096
MOST_FOLLOWED = 256
"""More than these are not worth to be looked at one by one."""


class RowChanges:
    """The latest changes, in their order. A moment is the number of changes before it."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._forgotten = 0

    @property
    def now(self) -> int:
        """This moment."""
        return self._forgotten + len(self._rows)

    def note(self, row: int) -> None:
        """The resources of the node at `row`, or what is requested of them, have changed."""
        if len(self._rows) >= _MOST_KEPT:
            self._forgotten = self.now
            self._rows.clear()
        self._rows.append(row)

    def since(self, moment: int) -> Collection[int] | None:
        """The rows that have changed since then, each once; None: that was too long ago to tell."""
        return None if moment < self._forgotten else set(self._rows[moment - self._forgotten :])
