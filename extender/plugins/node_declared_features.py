"""NodeDeclaredFeatures: a node must declare the features that the pod needs (KEP-5328).

Source: upstream plugin nodedeclaredfeatures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import FILTER, PRE_FILTER, Arguments, Plugin
from extender.framework.queueing_hints import Interest, Interests, changes
from extender.framework.rules import Check, PerNode, RowCheck
from extender.framework.status import unresolvable
from extender.model.node import Node
from extender.model.pod import Container, Pod, SecurityContext
from extender.table import PodInfo, Table

NAME = "NodeDeclaredFeatures"
REFUSAL = unresolvable(NAME, "node(s) didn't match Pod's required features")


@dataclass(frozen=True, slots=True)
class NodeDeclaredFeatures(PerNode):
    """Refuses nodes that do not declare a feature that the pod needs."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        if not table.features.node_declared_features:
            return None
        required = required_features(pod.pod)
        if not table.features.behaviours.certificate_and_oci_features:
            required -= _SINCE_1_38
        if not required:
            return None
        declared = table.nodes.facts(_declared)
        lacking = np.array([not required <= features for features in declared.values], np.bool_)
        return RowCheck(lambda rows: [(lacking[declared.ids[rows]], REFUSAL)])


def required_features(pod: Pod) -> frozenset[str]:
    """Returns the features that a node must declare to run the pod.

    Source: component-helpers/nodedeclaredfeatures/features. Only some of these features affect scheduling.
    """
    spec = pod.spec
    features: set[str] = set()
    if spec.host_network and spec.host_users is False:
        features.add("UserNamespacesHostNetworkSupport")
    if _is_oci(spec.security_context):
        features.add("SecurityProfileOCI")
    for container in (*pod.init_containers, *pod.containers, *(spec.ephemeral_containers or ())):
        features.update(_required_by(container))
    for volume in spec.volumes or ():
        for source in (volume.projected.sources if volume.projected else None) or ():
            if source.pod_certificate and source.pod_certificate.key_type in ("MLDSA44", "MLDSA65", "MLDSA87"):
                features.add("PodCertificateMLDSA")
    return frozenset(features)


def _required_by(container: Container) -> Iterator[str]:
    if _is_oci(container.security_context):
        yield "SecurityProfileOCI"
    for rule in container.restart_policy_rules or ():
        if rule.action == "RestartAllContainers":
            yield "RestartAllContainersOnContainerExits"
    for mount in container.volume_mounts or ():
        if mount.bind_mount_options:
            yield "VolumeBindMountOptions"


def _is_oci(context: SecurityContext | None) -> bool:
    return context is not None and context.seccomp_profile is not None and context.seccomp_profile.type == "OCI"


_SINCE_1_38 = frozenset(("PodCertificateMLDSA", "SecurityProfileOCI"))


def _declared(node: Node) -> frozenset[str]:
    return frozenset(node.status.declared_features or ())


def needs_change(_pod: PodInfo, change: Change) -> bool:
    """Returns True if the update changed the features that the pod needs; most updates do not."""
    return required_features(change.old.pod) != required_features(change.new.pod)


PLUGIN = Plugin(
    NAME,
    Arguments,
    lambda _: NodeDeclaredFeatures(),
    needs=((FILTER, PRE_FILTER),),
    interests=Interests(
        (
            Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, changes(_declared)),
            Interest(Resource.TARGET_POD, Action.UPDATE, needs_change),
        )
    ),
)
