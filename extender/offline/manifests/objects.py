"""API objects as dicts, as `kubectl get -o json` gives them, made into the model's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from extender.errors import MalformedCluster
from extender.model.kinds import ADMISSION_KINDS, KINDS, Kind
from extender.model.meta import Object
from extender.model.pod import Pod

DEFAULT_NAMESPACE = "default"
READ_KINDS: Mapping[str, Kind] = {**KINDS, **ADMISSION_KINDS}
"""The purposes that a snapshot is read for."""

T = TypeVar("T", bound=Object)


def to_object(item: Mapping[str, Any], place: str) -> Object | None:
    """The object, or None where its kind is none that scheduling looks at. `place` says where it was found.

    Raises:
        MalformedCluster: the item has no kind, or a field of the wrong type.
    """
    name = item.get("kind") if isinstance(item, Mapping) else None
    if not isinstance(name, str):
        raise MalformedCluster(f"{place}: want an object with a kind, apiVersion and metadata")
    kind = READ_KINDS.get(name)
    if kind is None or _group(item.get("apiVersion", kind.api_version)) != _group(kind.api_version):
        return None
    obj = _converted(item, kind.type, place)
    return _identified(obj) if isinstance(obj, Pod) else obj


def to_pod(pod: Pod | Mapping[str, Any], place: str = "pod") -> Pod:
    """The pod, with namespace and UID filled in where a file written by hand leaves them out.

    Raises:
        MalformedCluster: it is no mapping, has no name, or a field of the wrong type.
    """
    return pod if isinstance(pod, Pod) else _identified(_converted(pod, Pod, place))


def _converted(item: Mapping[str, Any], kind: type[T], place: str) -> T:
    try:
        obj = msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"{place}: {error}") from None
    if not obj.name:
        raise MalformedCluster(f"{place}: metadata.name is missing")
    return obj


def _identified(pod: Pod) -> Pod:
    if pod.namespace and pod.uid:
        return pod
    namespace = pod.namespace or DEFAULT_NAMESPACE
    uid = pod.uid or f"{namespace}/{pod.name}"
    metadata = msgspec.structs.replace(pod.metadata, namespace=namespace, uid=uid)
    return msgspec.structs.replace(pod, metadata=metadata)


def _group(api_version: object) -> str:
    return str(api_version).rpartition("/")[0]
