"""Creates the pods of a DaemonSet as its controller does: one on each node that the template selects and tolerates.

Sources: upstream pkg/controller/daemon nodeShouldRunDaemonPod, ReplaceDaemonSetPodNodeNameNodeAffinity.
"""

from __future__ import annotations

from msgspec.structs import replace

from extender.engine import Engine
from extender.framework.profile import Profiles
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod import Affinity, NodeAffinity, Pod
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile

_EXAMINED = ("NodeAffinity", "TaintToleration")


def nodes_of_daemons(state: ClusterState, pod: Pod) -> list[str]:
    """Returns the nodes for which the controller would create this pod, however few resources they have free."""
    # Controllers do not read the scheduling policy, so the default profile is used.
    engine = Engine(state.table, Profiles([default_profile()]))
    names = [name for name in state.node_names() if pod.node_name in ("", name)]
    for plugin in _EXAMINED:
        refused = engine.filter_by(plugin, pod, names)
        names = [name for name in names if name not in refused]
    return names


def daemon_on(node_name: str, pod: Pod) -> Pod:
    """Returns the DaemonSet's pod for a node; its required node affinity selects only this node."""
    name = f"{pod.name}-{node_name}"
    affinity = pod.spec.affinity or Affinity()
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[field])])
    pinned = replace(affinity, node_affinity=replace(affinity.node_affinity or NodeAffinity(), required=required))
    metadata = replace(pod.metadata, name=name, uid=f"{pod.namespace}/{name}")
    return replace(pod, metadata=metadata).with_spec(affinity=pinned)
