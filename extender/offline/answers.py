"""Defines the base of all answers: the fields of an answer are the keys of its JSON document.

The published schemas come from the same fields (`extender.cli.schemas`). pandas is an optional dependency, which only
this module imports. `CauseCode` has a code for each reason why pods are pending; a code stays the same if the
scheduler's text changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from extender.errors import ExtenderError
from extender.offline import rendering

if TYPE_CHECKING:
    import pandas as pd


class Documented(msgspec.Struct, frozen=True, rename="camel"):
    """An answer, or a part of one. The section "Attributes" of its docstring describes its keys in the schema."""

    def to_dict(self) -> dict[str, Any]:
        """Returns a mapping of the attributes, ready for JSON; names are written like `runnerUp`."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))  # `to_builtins` would keep tuples
        return document


_Result = TypeVar("_Result", bound=Documented)


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Returns the rows as a DataFrame; nested mappings become columns such as `requested.cpu`.

    Args:
        columns: the first columns, which the frame has even without rows.

    Raises:
        ExtenderError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ExtenderError("to_frame needs pandas: pip install 'podseat[pandas]'") from None
    made = pd.json_normalize(list(map(dict, rows)))
    if columns is None:
        return made
    return made.reindex(columns=[*columns, *(each for each in made.columns if each not in columns)])


class Listing(list[_Result]):
    """A list of results that a notebook shows as a table."""

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each result. Raises ExtenderError if pandas is not installed."""
        return frame(each.to_dict() for each in self)

    def _repr_html_(self) -> str:
        documents = [each.to_dict() for each in self]
        head = list(documents[0]) if documents else []
        rows = [[_shown(value) for value in document.values()] for document in documents]
        return rendering.part("table.html", {"title": f"{len(self)} rows", "head": head, "rows": rows})


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return "" if value is None else str(value)


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
