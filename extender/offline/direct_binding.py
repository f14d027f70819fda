"""Judges pods that name their node in the manifest. No scheduler sees them, but the node's kubelet may reject them.

Source: upstream pkg/kubelet/lifecycle/predicate.go generalFilter.
"""

from __future__ import annotations

from msgspec.structs import replace

from extender.engine import Engine
from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile

_EXAMINED = ("NodeResourcesFit", "NodePorts", "NodeAffinity")
_NO_EXECUTE = "NoExecute"


def names_its_node(pod: Pod, state: ClusterState) -> bool:
    """Returns True if the manifest sets spec.nodeName, and the cluster does not already have the pod on a node."""
    return bool(pod.node_name) and state.node_of(pod) is None


def objection(pod: Pod, state: ClusterState) -> str | None:
    """Returns why the pod would not run on the node that it names; None if the pod would run there."""
    name = pod.node_name
    if not state.has_node(name):
        return f"there is no node {name} in this cluster"
    # Kubelets do not read the scheduling policy, so the default profile is used.
    engine = Engine(state.table, Profiles([default_profile()]))
    reasons = [
        reason
        for plugin in _EXAMINED
        for refusal in engine.filter_by(plugin, pod, [name]).values()
        for reason in refusal.reasons
    ]
    node = state.node(name)
    taints = [taint for taint in node.taints if taint.effect == _NO_EXECUTE]
    with engine.suppose(objects=[replace(node, spec=replace(node.spec, taints=taints or None))]):
        refusals = engine.filter_by("TaintToleration", pod, [name]).values()
        reasons += [reason for refusal in refusals for reason in refusal.reasons]
    return f"the kubelet of {name} would reject it: {', '.join(reasons)}" if reasons else None


def note(pod: Pod, state: ClusterState) -> str:
    """Returns a note that spec.nodeName binds the pod to its node, with the kubelet's objection if there is one."""
    verdict = objection(pod, state)
    return f"spec.nodeName binds it to {pod.node_name} without a scheduler" + (f", but {verdict}" if verdict else "")
