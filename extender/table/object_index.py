"""Stores the objects that rules read, except nodes and pods, by kind and key."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import TypeVar, cast

from extender.model.meta import Object
from extender.model.selectors import NOTHING, Selector, compile_selector, selector_from_labels
from extender.model.workloads import Namespace, PodDisruptionBudget, Service
from extender.table.journal import Cursor, Journal
from extender.table.labels import SelectorIndex
from extender.table.podinfo import Group

T = TypeVar("T", bound=Object)


class Objects:
    """Objects by kind and key (`namespace/name`, or `name`).

    Each change is recorded in the journal, with the kind as the topic.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kinds: dict[str, dict[str, Object]] = {}

    def set(self, kind: str, obj: Object) -> None:
        """Adds or replaces an object."""
        self._kinds.setdefault(kind, {})[obj.key] = obj
        self._journal.note(kind, obj.key)

    def remove(self, kind: str, key: str) -> None:
        """Removes an object; an unknown key is ignored."""
        if self._kinds.get(kind, {}).pop(key, None) is not None:
            self._journal.note_removed(kind, key)

    def all(self, kind: type[T]) -> Mapping[str, T]:
        return cast("Mapping[str, T]", self.of_kind(kind.__name__))

    def of_kind(self, name: str) -> Mapping[str, Object]:
        return self._kinds.get(name, {})

    def kinds(self) -> ItemsView[str, Mapping[str, Object]]:
        kinds: Mapping[str, Mapping[str, Object]] = self._kinds
        return kinds.items()

    def get(self, kind: type[T], key: str) -> T | None:
        return self.all(kind).get(key)


_MAX_SELECTORS = 512
NO_LABELS: frozenset[tuple[str, str]] = frozenset()


class Namespaces:
    """The labels of Namespace objects."""

    def __init__(self, objects: Objects, journal: Journal) -> None:
        self._objects = objects
        self._changes = Cursor(journal, Namespace.__name__)
        self._labels: dict[str, frozenset[tuple[str, str]]] = {}
        self._matching: dict[Selector, frozenset[str]] = {}

    def labels(self, name: str) -> frozenset[tuple[str, str]]:
        """Returns the labels of the namespace; empty if it is unknown (upstream GetNamespaceLabelsSnapshot)."""
        self._refresh()
        return self._labels.get(name, NO_LABELS)

    def matching(self, selector: Selector) -> frozenset[str]:
        """Returns the names of the known namespaces whose labels match the selector."""
        self._refresh()
        names = self._matching.get(selector)
        if names is None:
            if len(self._matching) >= _MAX_SELECTORS:
                self._matching.clear()
            namespaces = self._objects.all(Namespace).values()
            names = self._matching[selector] = frozenset(n.name for n in namespaces if selector.matches(n.labels))
        return names

    def _refresh(self) -> None:
        if self._changes.advance():
            self._matching.clear()
            self._labels = {n.name: frozenset(n.labels.items()) for n in self._objects.all(Namespace).values()}


class Budgets:
    """Indexes PodDisruptionBudgets by selector.

    `every_protects`: True if a budget with an empty selector covers pods, and a pod without labels can be covered
    (`Behaviours.every_budget_protects`).
    """

    def __init__(self, budgets: Mapping[str, PodDisruptionBudget], *, every_protects: bool) -> None:
        self._every_protects = every_protects
        self._by_selector: SelectorIndex[tuple[str, Selector]] = SelectorIndex()
        for key, budget in budgets.items():
            selector = compile_selector(budget.spec.selector)
            if selector.requirements or (self._every_protects and selector != NOTHING):
                self._by_selector.add(selector, (key, selector))

    def covering(self, group: Group) -> Iterator[str]:
        """Yields the keys of the budgets that cover pods with this namespace and these labels, in any order."""
        if not group.labels and not self._every_protects:
            return
        labels = group.mapping
        for key, selector in self._by_selector.candidates(group.labels):
            if key.partition("/")[0] == group.namespace and selector.matches(labels):
                yield key


class Services:
    """The services that have a selector, by namespace."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}
        self._by_namespace: dict[str, SelectorIndex[str]] = {}

    def set(self, service: Service) -> None:
        self.remove(service.key)
        if service.spec.selector is not None:  # a service without a selector selects nothing
            self._services[service.key] = service
            index = self._by_namespace.setdefault(service.namespace, SelectorIndex())
            index.add(selector_from_labels(service.spec.selector), service.key)

    def remove(self, key: str) -> None:
        """Removes the service; an unknown key is ignored."""
        service = self._services.pop(key, None)
        if service is not None:
            selector = selector_from_labels(service.spec.selector or {})
            index = self._by_namespace[service.namespace]
            index.remove(selector, key)
            if not len(index):
                del self._by_namespace[service.namespace]

    def selecting(self, group: Group) -> list[Service]:
        """Returns the services in the group's namespace whose selectors match the group's labels."""
        index = self._by_namespace.get(group.namespace)
        if index is None:
            return []
        candidates = (self._services[key] for key in index.candidates(group.labels))
        return [service for service in candidates if group.labels.issuperset((service.spec.selector or {}).items())]
