"""Namespaces by name and by selector, read again when one of them has changed."""

from __future__ import annotations

from extender.model.selectors import Selector
from extender.model.workloads import Namespace
from extender.table.journal import Cursor, Journal
from extender.table.objects import Objects

NO_LABELS: frozenset[tuple[str, str]] = frozenset()


class Namespaces:
    """The Namespace objects among `objects`."""

    def __init__(self, objects: Objects, journal: Journal) -> None:
        self._objects = objects
        self._changes = Cursor(journal, Namespace.__name__)
        self._labels: dict[str, frozenset[tuple[str, str]]] = {}
        self._matching: dict[Selector, frozenset[str]] = {}

    def labels(self, name: str) -> frozenset[tuple[str, str]]:
        """Returns the labels of the namespace; none if it is not known (upstream GetNamespaceLabelsSnapshot)."""
        self._refresh()
        return self._labels.get(name, NO_LABELS)

    def matching(self, selector: Selector) -> frozenset[str]:
        """Returns the names of the known namespaces whose labels the selector matches."""
        self._refresh()
        names = self._matching.get(selector)
        if names is None:
            known = self._objects.all(Namespace).values()
            names = self._matching[selector] = frozenset(n.name for n in known if selector.matches(n.labels))
        return names

    def _refresh(self) -> None:
        if self._changes.advance():
            self._matching.clear()
            self._labels = {n.name: frozenset(n.labels.items()) for n in self._objects.all(Namespace).values()}
