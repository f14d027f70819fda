"""Writes a cluster as one JSON list, with all kinds and fields that scheduling reads; redacts it if asked."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any

import msgspec

from extender.model.meta import Object
from extender.model.volumes.storage import CSIDriver
from extender.offline.manifests.objects import READ_KINDS

_NAMED_KINDS = frozenset({CSIDriver.__name__})  # their names are names of products, so they are not confidential
_DRIVERS = "drivers"  # a CSINode's list of drivers; their names are kept, because they are names of products
_IMAGES = frozenset(("image", "names", "reference"))
_KEPT_VALUES = re.compile(r"-?\d*|true|false|yes|system-(cluster|node)-critical|kubernetes\.io/.*", re.ASCII)
_SYSTEM_DOMAIN = re.compile(r"([a-z0-9-]+\.)*(kubernetes|k8s)\.io/.*")
_UNREAD_ANNOTATION = re.compile(r"kubectl\.kubernetes\.io/.*|kubernetes\.io/config\..*|.*/(leader|preferAvoidPods)")
_HASH_BYTES = 6


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Values of these fields are words of the API, product names, or numbers; all other text may be confidential.
_KEPT_FIELDS = _words("""
    apiVersion kind operator effect phase type status reason topologyKey key whenUnsatisfiable nodeAffinityPolicy
    nodeTaintsPolicy protocol restartPolicy action preemptionPolicy accessModes volumeMode volumeBindingMode
    reclaimPolicy provisioner driver attacher plugin schedulerName creationTimestamp deletionTimestamp startTime
    resourceVersion apiGroup resource hostIP allocationMode adminAccess expression declaredFeatures bindMountOptions
    bindingConditions bindingFailureConditions matchLabelKeys mismatchLabelKeys maximumVolumeSize matchAttribute
    distinctAttribute extendedResourceName unhealthyPodEvictionPolicy
""")
# Nothing below these fields is changed: they hold quantities, and values that device selectors compare.
_KEPT_PARTS = _words("""
    requests limits allocatable capacity allocatedResources overhead podFixed default defaultRequest attributes cel
    sharedCounters consumesCounters counters consumedCapacity
""")
_LABELS = _words("labels matchLabels nodeSelector selector annotations")


def write_snapshot(objects: Iterable[Object], *, redact: bool = False, compress: bool = False) -> bytes:
    """Returns the objects as JSON: a v1 List.

    Fields that no scheduling rule reads are left out, and annotations other than those of Kubernetes itself.

    Args:
        redact: replaces names, label values, images and similar texts by hashes; equal texts get equal hashes. Keys of
            labels, taints and resources stay, and so do numbers. Hashes of two snapshots are not comparable. A decision
            that depends on the order of names (a tie between victims) may be different on the redacted cluster.
        compress: compresses the JSON with gzip.
    """
    redaction = Redaction() if redact else None
    items = [_item(obj, redaction) for obj in objects if type(obj).__name__ in READ_KINDS]
    data = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
    return gzip.compress(data, mtime=0) if compress else data


def _item(obj: Object, redaction: Redaction | None) -> dict[str, Any]:
    kind = READ_KINDS[type(obj).__name__]
    item = _essence(obj) if redaction is None else redaction.of(obj)
    return {"apiVersion": kind.api_version, "kind": kind.name, **item}


def _essence(obj: Object) -> dict[str, Any]:
    """Returns the object's fields as a dict, with only those annotations that a scheduling rule reads."""
    item: dict[str, Any] = msgspec.to_builtins(obj)
    metadata = item.get("metadata", {})
    annotations = {key: value for key, value in (metadata.pop("annotations", None) or {}).items() if _is_read(key)}
    if annotations:
        metadata["annotations"] = annotations
    return item


def _is_read(annotation: str) -> bool:
    return bool(_SYSTEM_DOMAIN.fullmatch(annotation)) and not _UNREAD_ANNOTATION.fullmatch(annotation)


class Redaction:
    """Replaces names in the objects of one file by hashes; equal names get equal hashes.

    The hashes depend on a random secret that is never stored, so that a reader of the file cannot guess names and
    compare their hashes.
    """

    def __init__(self) -> None:
        self._secret = token_bytes(16)

    def of(self, obj: Object) -> dict[str, Any]:
        """Returns the object's fields as a dict, with names hashed and without annotations that no rule reads."""
        item = _essence(obj)
        redacted: dict[str, Any] = self._value("", item)
        if type(obj).__name__ in _NAMED_KINDS and "metadata" in item:
            redacted["metadata"] = item["metadata"]
        return redacted

    def key(self, kind: str, key: str) -> str:
        """Returns the redacted object's key for an object's key, which is `namespace/name` or a UID."""
        return key if kind in _NAMED_KINDS else "/".join(map(self.text, key.split("/")))

    def _value(self, field: str, value: Any) -> Any:
        """Returns the value of a field with all names in it hashed."""
        if field == _DRIVERS or (field in _KEPT_PARTS and not isinstance(value, list)):
            return value
        if isinstance(value, Mapping):
            # A label may have the same name as a field, so labels are handled separately.
            texts = field in _LABELS
            return {
                key: self.text(inner) if texts and isinstance(inner, str) else self._value(key, inner)
                for key, inner in value.items()
            }
        if field in _KEPT_FIELDS:
            return value
        if isinstance(value, list):
            # A list called `requests` holds requests for devices, which contain names.
            within = "" if field in _KEPT_PARTS else field
            return [self._value(within, inner) for inner in value]
        if not isinstance(value, str):
            return value
        return self._image(value) if field in _IMAGES else self.text(value)

    def text(self, text: str) -> str:
        """Returns a hash of the text, or the text itself if it is empty, a number or a word of Kubernetes."""
        # The label of a volume in several zones joins them by two underscores.
        parts = text.split("__")
        return "__".join(part if _KEPT_VALUES.fullmatch(part) else self._hash(part) for part in parts)

    def _image(self, image: str) -> str:
        """Returns the image with its name hashed. Its tag is kept, because without one it would mean `latest`."""
        name, colon, tag = image.rpartition(":")
        return self._hash(image) if not colon or "/" in tag or "@" in name else f"{self._hash(name)}:{tag}"

    def _hash(self, text: str) -> str:
        return "x" + blake2b(text.encode(), digest_size=_HASH_BYTES, key=self._secret).hexdigest()
