"""Derives a selector for a pod's replicas from the services and controllers that select the pod.

Source: upstream plugins/helper DefaultSelector.
"""

from __future__ import annotations

from extender.model.meta import LabelSelector, OwnerReference
from extender.model.selectors import EVERYTHING, Selector, compile_selector, selector_from_labels
from extender.model.workloads import ReplicaSet, ReplicationController, StatefulSet
from extender.table import PodInfo, Table


def default_selector(pod: PodInfo, table: Table) -> Selector:
    """Returns the combined selectors of the pod's services and controller; EVERYTHING if the pod has neither."""
    labels: dict[str, str] = {}
    for service in table.services.selecting(pod.group):
        labels.update(service.spec.selector or {})
    owner = pod.pod.controller
    if owner is None:
        return selector_from_labels(labels) if labels else EVERYTHING
    key = f"{pod.pod.namespace}/{owner.name}"
    if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
        controller = table.objects.get(ReplicationController, key)
        labels.update((controller.spec.selector or {}) if controller else {})
    replicas = _label_selector_of(owner, key, table)
    selector = selector_from_labels(labels)
    return selector.with_requirements(*compile_selector(replicas).requirements) if replicas else selector


def _label_selector_of(owner: OwnerReference, key: str, table: Table) -> LabelSelector | None:
    match owner.api_version, owner.kind:
        case "apps/v1", "ReplicaSet":
            controller: ReplicaSet | StatefulSet | None = table.objects.get(ReplicaSet, key)
        case "apps/v1", "StatefulSet":
            controller = table.objects.get(StatefulSet, key)
        case _:
            return None
    return controller.spec.selector if controller else None
