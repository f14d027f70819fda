"""Creates the pods of DaemonSets as their controller does: one on each node that the template selects and tolerates.

Sources: upstream pkg/controller/daemon nodeShouldRunDaemonPod, ReplaceDaemonSetPodNodeNameNodeAffinity.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from extender.engine import Engine
from extender.errors import MalformedCluster
from extender.framework.profile import Profiles
from extender.model.controllers import DaemonSet
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod import Affinity, NodeAffinity, Pod, PodSpec
from extender.offline.controllers.replicas import is_daemon
from extender.offline.controllers.workloads import as_created, lacks_class, pod_of_template
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile

_EXAMINED = ("NodeAffinity", "TaintToleration")
_NODE_FIELD = "metadata.name"


def nodes_of_daemons(state: ClusterState, pod: Pod, names: Iterable[str] | None = None) -> list[str]:
    """Returns the nodes for which the controller would create this pod, however few resources they have free.

    Args:
        names: the nodes to look at; by default all.
    """
    # Controllers do not read the scheduling policy, so the default profile is used.
    engine = Engine(state.table, Profiles([default_profile()]))
    candidates = [name for name in names or state.node_names() if pod.node_name in ("", name)]
    for plugin in _EXAMINED:
        refused = engine.filter_by(plugin, pod, candidates)
        candidates = [name for name in candidates if name not in refused]
    return candidates


def daemon_on(node_name: str, pod: Pod) -> Pod:
    """Returns the DaemonSet's pod for a node; its required node affinity selects only this node."""
    name = f"{pod.name}-{node_name}"
    field = NodeSelectorRequirement(key=_NODE_FIELD, operator="In", values=[node_name])
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[field])])
    metadata = replace(pod.metadata, name=name, uid=f"{pod.namespace}/{name}")
    return _with_required(replace(pod, metadata=metadata), required)


def node_of_daemon(pod: Pod) -> str:
    """Returns the node that a DaemonSet's pod is on or waits for; "" if the pod names no node."""
    required = _required(pod.spec)
    terms = (required.node_selector_terms if required else None) or ()
    fields = (field for term in terms for field in term.match_fields or () if field.key == _NODE_FIELD)
    return pod.node_name or next((value for field in fields for value in field.values or ()), "")


def daemon_templates(state: ClusterState, notes: list[str], like: str | None = None) -> list[Pod]:
    """Returns one new pod of each DaemonSet, without a node; those of high priority come first.

    If the cluster lacks a DaemonSet as an object, its newest pod is copied. The controller has replaced the pod's node
    affinity, so it is not known which nodes such a DaemonSet selects. The newest pod is also copied, with the node
    affinity of the template, if the file lacks a class that the template names.

    Args:
        notes: gets a remark on each DaemonSet whose pods the API server would refuse.
        like: a node; a DaemonSet that is not an object counts only if it has a pod for this node.
    """
    known = {obj.key: obj for obj in state.objects.all(DaemonSet).values() if isinstance(obj, DaemonSet)}
    newest: dict[str, Pod] = {}
    nodes: dict[str, set[str]] = {}
    for info in state.infos.values():
        pod, owner = info.pod, info.pod.controller
        if owner is None or not is_daemon(pod):
            continue
        key = f"{pod.namespace}/{owner.name}"
        nodes.setdefault(key, set()).add(node_of_daemon(pod))
        other = newest.setdefault(key, pod)
        if other.metadata.created_seconds < pod.metadata.created_seconds:
            newest[key] = pod
    templates = [
        _with_required(as_created(pod), None)
        for key, pod in newest.items()
        if key not in known and (like is None or like in nodes[key])
    ]
    for key, obj in known.items():
        if obj.terminating or obj.spec.template is None:
            continue
        if key in newest and lacks_class(obj, state):
            templates.append(_with_required(as_created(newest[key]), _required(obj.spec.template.spec)))
            continue
        try:
            templates.append(pod_of_template(obj, state))
        except MalformedCluster as error:
            notes.append(f"DaemonSet {key} gets no pod there: {error}")
    return sorted(templates, key=lambda pod: -pod.priority)


def _required(spec: PodSpec) -> NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required if affinity else None


def _with_required(pod: Pod, required: NodeSelector | None) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    own = affinity.node_affinity or NodeAffinity()
    return pod.with_spec(affinity=replace(affinity, node_affinity=replace(own, required=required)))
