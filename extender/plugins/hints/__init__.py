"""Which events may help the pods that a rule refused, for every rule the scheduler has.

The table is a plain mapping: a user's rule is added to a copy of it. A rule that is not in it is taken to be interested
in every event.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.framework.events.queueing_hints import Hint, Interest, Interests, QueueingHints
from extender.plugins.hints.devices import DYNAMIC_RESOURCES
from extender.plugins.hints.nodes import (
    NODE_AFFINITY,
    NODE_DECLARED_FEATURES,
    NODE_NAME,
    NODE_RESOURCES_FIT,
    NODE_UNSCHEDULABLE,
    TAINT_TOLERATION,
)
from extender.plugins.hints.pods import (
    DEFAULT_PREEMPTION,
    INTER_POD_AFFINITY,
    NODE_PORTS,
    POD_TOPOLOGY_SPREAD,
    SCHEDULING_GATES,
)
from extender.plugins.hints.volumes import NODE_VOLUME_LIMITS, VOLUME_BINDING, VOLUME_RESTRICTIONS, VOLUME_ZONE

__all__ = ["INTERESTS", "Hint", "Interest", "Interests", "QueueingHints"]

INTERESTS: Mapping[str, Interests] = {
    "DefaultPreemption": DEFAULT_PREEMPTION,
    "DynamicResources": DYNAMIC_RESOURCES,
    "InterPodAffinity": INTER_POD_AFFINITY,
    "NodeAffinity": NODE_AFFINITY,
    "NodeDeclaredFeatures": NODE_DECLARED_FEATURES,
    "NodeName": NODE_NAME,
    "NodePorts": NODE_PORTS,
    "NodeResourcesFit": NODE_RESOURCES_FIT,
    "NodeUnschedulable": NODE_UNSCHEDULABLE,
    "NodeVolumeLimits": NODE_VOLUME_LIMITS,
    "PodTopologySpread": POD_TOPOLOGY_SPREAD,
    "SchedulingGates": SCHEDULING_GATES,
    "TaintToleration": TAINT_TOLERATION,
    "VolumeBinding": VOLUME_BINDING,
    "VolumeRestrictions": VOLUME_RESTRICTIONS,
    "VolumeZone": VOLUME_ZONE,
}
