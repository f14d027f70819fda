"""PodDisruptionBudgets by the pods that they cover."""

from __future__ import annotations

from collections.abc import Iterator

from extender.model.selectors import Selector, compile_selector
from extender.model.workloads import PodDisruptionBudget
from extender.table.journal import Cursor, Journal
from extender.table.label_index import SelectorIndex
from extender.table.objects import Objects
from extender.table.podinfo import Group


class Budgets:
    """The budgets by selector, read again when one of them has changed."""

    def __init__(self, objects: Objects, journal: Journal) -> None:
        self._objects = objects
        self._changes = Cursor(journal, PodDisruptionBudget.__name__)
        self._by_selector: SelectorIndex[tuple[str, Selector]] = SelectorIndex()

    def covering(self, group: Group) -> Iterator[str]:
        """Yields the keys of the budgets that cover pods of this group, in no order."""
        if self._changes.advance():
            self._renew()
        if not group.labels:  # upstream skips such pods, though a selector like DoesNotExist would match them
            return
        labels = dict(group.labels)
        for key, selector in self._by_selector.candidates(group.labels):
            if key.partition("/")[0] == group.namespace and selector.matches(labels):
                yield key

    def _renew(self) -> None:
        self._by_selector = SelectorIndex()
        for key, budget in self._objects.all(PodDisruptionBudget).items():
            selector = compile_selector(budget.spec.selector)
            if selector.requirements:  # an empty selector covers nothing here, unlike anywhere else
                self._by_selector.add(selector, (key, selector))
