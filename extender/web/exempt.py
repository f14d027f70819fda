"""Pods that the extender lets pass without a check: its own, and those of namespaces that must not depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.extender_v1.types import ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs
from extender.model.meta import NO_LABELS

_WITH_POD = (ExtenderArgs, ExtenderPreemptionArgs)


class PodReference(NamedTuple):
    """The pod that a request is about, as far as the request describes it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, request: object) -> PodReference | None:
        """Returns None for a request of no known form. A bind request holds no labels."""
        if isinstance(request, _WITH_POD):
            pod = request.pod
            return cls(pod.uid, pod.namespace, pod.name, pod.labels)
        if isinstance(request, ExtenderBindingArgs):
            return cls(request.pod_uid, request.pod_namespace, request.pod_name, NO_LABELS)
        return None


@dataclass(frozen=True, slots=True)
class Exemptions:
    """An extender that checked its own pods could not be started anew where it is the only way to a node.

    Own pods are those of `own_namespace` that are called `own_name` or, for other replicas, carry all of `own_labels`
    (none given: no pod).
    """

    namespaces: frozenset[str] = frozenset()
    own_namespace: str = ""
    own_name: str = ""
    own_labels: Mapping[str, str] = field(default_factory=dict)

    def cover(self, pod: PodReference | None) -> bool:
        """Returns True if `pod` passes."""
        if pod is None:
            return False
        return pod.namespace in self.namespaces or (bool(self.own_namespace) and self._own(pod))

    def _own(self, pod: PodReference) -> bool:
        if pod.namespace != self.own_namespace:
            return False
        labelled = bool(self.own_labels) and self.own_labels.items() <= pod.labels.items()
        return labelled or (bool(self.own_name) and pod.name == self.own_name)
