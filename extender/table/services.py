"""Services by the pods that they select. Source: upstream plugins/helper GetPodServices."""

from __future__ import annotations

from extender.model.selectors import selector_from_labels
from extender.model.workloads import Service
from extender.table.label_index import SelectorIndex
from extender.table.podinfo import Group


class Services:
    """The services with a selector, by namespace."""

    def __init__(self) -> None:
        self._known: dict[str, Service] = {}
        self._by_namespace: dict[str, SelectorIndex[str]] = {}

    def set(self, service: Service) -> None:
        """Adds or replaces the service."""
        self.remove(service.key)
        if service.spec.selector is not None:  # one without a selector selects nothing
            self._known[service.key] = service
            index = self._by_namespace.setdefault(service.namespace, SelectorIndex())
            index.add(selector_from_labels(service.spec.selector), service.key)

    def remove(self, key: str) -> None:
        """Removes the service; unknown keys are ignored."""
        service = self._known.pop(key, None)
        if service is not None:
            selector = selector_from_labels(service.spec.selector or {})
            self._by_namespace[service.namespace].remove(selector, key)

    def selecting(self, group: Group) -> list[Service]:
        """Returns the services of the namespace whose selectors match the labels."""
        index = self._by_namespace.get(group.namespace)
        if index is None:
            return []
        candidates = (self._known[key] for key in index.candidates(group.labels))
        return [service for service in candidates if group.labels.issuperset((service.spec.selector or {}).items())]
