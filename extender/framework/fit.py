"""The outcome of filtering: which of the rows asked about can take the pod, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from extender.framework.rules import Verdict
from extender.framework.status import Code, Refusal, merged
from extender.table.labels import BoolColumn, Rows
from extender.table.podinfo import lazy_attribute

FITS = -1


class Fit:
    """The outcome for each of the rows asked about.

    Attributes:
        rows: intp[n]: the rows asked about.
        cause: intp[n]: index into `refusals`, or FITS.
        refusals: the distinct refusals, in the order in which they were met.
        narrowed_by: the plugins that named the nodes that can do at all; they refused all others.
        refused_at_once: the pod was refused on every node before any was looked at (upstream PreFilter).
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.refusals: list[Refusal] = []
        self.narrowed_by: Sequence[str] = ()
        self.refused_at_once = False

    @lazy_attribute
    def cause(self) -> NDArray[np.intp]:
        return np.full(len(self.rows), FITS, np.intp)

    @property
    def feasible(self) -> Rows:
        """Returns the rows that can take the pod."""
        return self.rows[self.cause == FITS] if self.refusals else self.rows

    def refused(self) -> Iterator[tuple[int, Refusal]]:
        """Yields (row, refusal) of every row that cannot take it."""
        for position in np.flatnonzero(self.cause != FITS):
            yield int(self.rows[position]), self.refusals[self.cause[position]]

    def refusal(self, position: int) -> Refusal | None:
        """Returns the refusal of the row at `position` of `rows`, if it was refused."""
        cause = self.cause[position]
        return None if cause == FITS else self.refusals[cause]

    def with_code(self, code: Code) -> Rows:
        """Returns the rows refused with exactly this code."""
        chosen = [cause for cause, refusal in enumerate(self.refusals) if refusal.code is code]
        return self.rows[np.isin(self.cause, chosen)]

    def by_plugin(self) -> dict[str, int]:
        """Returns the number of rows that each plugin refused."""
        counts: dict[str, int] = {}
        for cause, rows in enumerate(np.bincount(self.cause[self.cause != FITS], minlength=len(self.refusals))):
            plugin = self.refusals[cause].plugin
            counts[plugin] = counts.get(plugin, 0) + int(rows)
        return counts

    def refuse(self, positions: Rows, refusal: Refusal) -> None:
        self.cause[positions] = len(self.refusals)
        self.refusals.append(refusal)

    def refuse_too(self, positions: Rows, refusal: Refusal) -> None:
        """Notes a further refusal of rows that may have been refused before."""
        for cause in np.unique(self.cause[positions]):
            at = positions[self.cause[positions] == cause]
            self.refuse(at, refusal if cause == FITS else merged(self.refusals[cause], refusal))

    def refuse_all(self, positions: Rows | None, verdict: Verdict) -> Rows | None:
        """Notes a verdict on the rows at `positions` (None: on all); returns the positions that still stand."""
        standing: BoolColumn | None = None
        for mask, refusal in verdict:
            if np.count_nonzero(mask):  # any() takes a detour through Python
                positions = np.arange(len(self.rows)) if positions is None else positions
                self.refuse(positions[mask], refusal)
                standing = ~mask if standing is None else standing & ~mask
        return positions if positions is None or standing is None else positions[standing]
