"""Says if the API server would create a pod with a changed spec; for example, a LimitRange may refuse it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from extender.errors import MalformedCluster
from extender.model.pod import Pod
from extender.model.workloads import LimitRange
from extender.offline.manifests import limit_ranges
from extender.offline.state import ClusterState

Acceptance = Callable[[Pod], bool]


def is_accepted(state: ClusterState, pod: Pod) -> bool:
    metadata = {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels}
    manifest = {"metadata": metadata, "spec": msgspec.to_builtins(pod.spec)}
    try:
        state.admit(manifest)
    except MalformedCluster:
        return False
    return True


def limits_of(state: ClusterState, pod: Pod) -> list[LimitRange]:
    """Returns the LimitRanges of the pod's namespace; [] if they refuse even the unchanged pod.

    In that case the pod is older than the LimitRanges, and they are ignored.
    """
    limits = limit_ranges.of_namespace(pod.namespace, state.objects)
    return limits if limits and is_accepted(state, pod) else []


def acceptance(state: ClusterState, pod: Pod) -> Acceptance:
    """Returns a function that says if the LimitRanges of the pod's namespace allow a changed pod."""
    return partial(is_accepted, state) if limits_of(state, pod) else lambda _: True
