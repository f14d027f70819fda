"""A drawn cluster, one of its pending pods, and the answers about it, for the checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from extender.framework.profile import Profiles
from extender.offline.cluster import Cluster
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.suggestion import limits_of
from extender.offline.state import ClusterState
from extender.policy.loading import read
from extender.snapshots.objects import to_objects
from tests.builders import Object

Faults = Iterator[str]
Check = Callable[["Case"], Faults]


class Case:
    """A cluster, one of its pending pods, and the answers about it."""

    def __init__(self, case: Object) -> None:
        self.name = case.get("name", "")
        self.manifest: Object = {"apiVersion": "v1", "kind": "Pod", **case["pod"]}
        self.items = [*case["cluster"]["items"], self.manifest]
        self.config = case.get("config")
        self.profiles: Profiles | None = None if self.config is None else read(self.config).scheduler_profiles()
        self.cluster = self.of(self.items)
        self.key = _key(self.manifest)

    def of(self, items: Iterable[Object]) -> Cluster:
        return Cluster.from_objects(items, self.profiles)

    def state(self) -> ClusterState:
        return ClusterState(to_objects(self.items), self.profiles)

    @cached_property
    def explanation(self) -> Explanation:
        return self.cluster.explain(self.key)

    @cached_property
    def is_limited(self) -> bool:
        """True if a LimitRange of the pod's namespace allows the pod, and so must allow a changed one."""
        return bool(limits_of(self.cluster._state, self.explanation.pod))

    @cached_property
    def document(self) -> Object:
        document: Object = json.loads(json.dumps(self.explanation.to_dict()))
        return document


def _key(item: Object) -> str:
    return "{namespace}/{name}".format(**{"namespace": "default", **item["metadata"]})
