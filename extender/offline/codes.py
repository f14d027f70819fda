"""Defines codes for the reasons why pods are pending. A code stays the same if the scheduler's text changes."""

from __future__ import annotations

from enum import StrEnum


class CauseCode(StrEnum):
    """The reason why nodes refuse a pod, or why the pod is pending."""

    INSUFFICIENT_RESOURCE = "InsufficientResource"
    TOO_MANY_PODS = "TooManyPods"
    TAINT = "Taint"
    NODE_SELECTION = "NodeSelection"
    CORDONED = "Cordoned"
    NODE_NAME = "NodeName"
    HOST_PORT = "HostPort"
    TOPOLOGY_SPREAD = "TopologySpread"
    POD_AFFINITY = "PodAffinity"
    VOLUME = "Volume"
    VOLUME_LIMIT = "VolumeLimit"
    DEVICE = "Device"
    NODE_FEATURE = "NodeFeature"
    OTHER_PLUGIN = "OtherPlugin"
    """A user's rule, or a plugin that is not listed here."""
    POD_GROUP = "PodGroup"
    """The pod waits with its pod group."""
    GATED = "Gated"
    """A scheduling gate of one member holds back its whole pod group."""
    SHORT_OF_PODS = "ShortOfPods"
    """The pod group lacks members, or child groups with members, so no scheduler tries it."""
    NO_GROUP = "NoGroup"
    """The PodGroup, or a group above it, does not exist."""
    DIFFERENT_MEMBERS = "DifferentMembers"
    """Members of one pod group differ in a field that must be the same in all."""
    TOPOLOGY = "Topology"
    """The members of the pod group find nodes, but not within one topology domain."""
    FITS = "Fits"
    """The pod fits on a node now."""
    EXCLUDED = "Excluded"
    """No scheduler tries the pod: it is gated, or it is being deleted."""
    NO_VERDICT = "NoVerdict"
    """There are no nodes, or the attempt failed with an error."""


_TOO_MANY_PODS = "Too many pods"
_BY_PLUGIN = {
    "NodeResourcesFit": CauseCode.INSUFFICIENT_RESOURCE,
    "TaintToleration": CauseCode.TAINT,
    "NodeAffinity": CauseCode.NODE_SELECTION,
    "NodeUnschedulable": CauseCode.CORDONED,
    "NodeName": CauseCode.NODE_NAME,
    "NodePorts": CauseCode.HOST_PORT,
    "PodTopologySpread": CauseCode.TOPOLOGY_SPREAD,
    "InterPodAffinity": CauseCode.POD_AFFINITY,
    "VolumeBinding": CauseCode.VOLUME,
    "VolumeZone": CauseCode.VOLUME,
    "VolumeRestrictions": CauseCode.VOLUME,
    "NodeVolumeLimits": CauseCode.VOLUME_LIMIT,
    "DynamicResources": CauseCode.DEVICE,
    "NodeDeclaredFeatures": CauseCode.NODE_FEATURE,
}


def code_of(plugin: str, reason: str) -> CauseCode:
    """Returns the code for a plugin's reason.

    `plugin` is empty if a preFilter had already ruled the node out; the code is then NODE_SELECTION.
    """
    if reason == _TOO_MANY_PODS:
        return CauseCode.TOO_MANY_PODS
    if not plugin:
        return CauseCode.NODE_SELECTION
    return _BY_PLUGIN.get(plugin, CauseCode.OTHER_PLUGIN)
