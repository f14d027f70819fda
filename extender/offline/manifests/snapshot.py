"""A cluster written down as one JSON list: every kind and field that decides anything; redacted if asked."""

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

_NAMED_KINDS = frozenset({CSIDriver.__name__})  # their names are those of products
_DRIVERS = "drivers"  # of a CSINode, by the names that StorageClasses and CSIDrivers have them
_IMAGES = frozenset(("image", "names", "reference"))
_KEPT_VALUES = re.compile(r"-?\d*|true|false|yes|system-(cluster|node)-critical|kubernetes\.io/.*", re.ASCII)
_SYSTEM_DOMAIN = re.compile(r"([a-z0-9-]+\.)*(kubernetes|k8s)\.io/.*")
_UNREAD_ANNOTATION = re.compile(r"kubectl\.kubernetes\.io/.*|kubernetes\.io/config\..*|.*/(leader|preferAvoidPods)")
_HASH_BYTES = 6


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Values of these fields are the API's words, product names, or numbers; all other text may be confidential.
_KEPT_FIELDS = _words("""
    apiVersion kind operator effect phase type status reason topologyKey key whenUnsatisfiable nodeAffinityPolicy
    nodeTaintsPolicy protocol restartPolicy action preemptionPolicy accessModes volumeMode volumeBindingMode
    reclaimPolicy provisioner driver attacher plugin schedulerName creationTimestamp deletionTimestamp startTime
    resourceVersion apiGroup resource hostIP allocationMode adminAccess expression declaredFeatures bindMountOptions
    bindingConditions bindingFailureConditions matchLabelKeys mismatchLabelKeys maximumVolumeSize matchAttribute
    distinctAttribute extendedResourceName unhealthyPodEvictionPolicy
""")
# Below these nothing is changed: quantities, and what expressions of devices compare.
_KEPT_PARTS = _words("""
    requests limits allocatable capacity allocatedResources overhead podFixed default defaultRequest attributes cel
    sharedCounters consumesCounters counters consumedCapacity
""")
_LABELS = _words("labels matchLabels nodeSelector selector annotations")


def write_snapshot(objects: Iterable[Object], *, redact: bool = False, compress: bool = False) -> bytes:
    """Returns the objects as a v1 List.

    Fields that no rule reads are left out, annotations but the system's own too.

    Args:
        redact: names, label values, images and the like become hashes that are equal where the texts were; keys of
            labels, taints and resources stay, and so do numbers. Hashes of two snapshots are not comparable. Where a
            decision depends on the order of names (ties between victims), it may be another one.
        compress: with gzip.
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
    """Returns the object's fields, with those annotations alone that a rule reads."""
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

    The hashes depend on a secret that is not kept, so that a reader of the file cannot try names.
    """

    def __init__(self) -> None:
        self._secret = token_bytes(16)

    def of(self, obj: Object) -> dict[str, Any]:
        """Returns the object's fields with hashes for names, and with those annotations alone that a rule reads."""
        item = _essence(obj)
        redacted: dict[str, Any] = self._value("", item)
        if type(obj).__name__ in _NAMED_KINDS and "metadata" in item:
            redacted["metadata"] = item["metadata"]
        return redacted

    def key(self, kind: str, key: str) -> str:
        """Returns the key, `namespace/name` or a UID, that the redacted object of this kind has."""
        return key if kind in _NAMED_KINDS else "/".join(map(self.text, key.split("/")))

    def _value(self, field: str, value: Any) -> Any:
        """Returns the value of a field without names."""
        if field == _DRIVERS or (field in _KEPT_PARTS and not isinstance(value, list)):
            return value
        if isinstance(value, Mapping):
            # A label may be called as a field is.
            texts = field in _LABELS
            return {
                key: self.text(inner) if texts and isinstance(inner, str) else self._value(key, inner)
                for key, inner in value.items()
            }
        if field in _KEPT_FIELDS:
            return value
        if isinstance(value, list):
            within = "" if field in _KEPT_PARTS else field  # `requests` of devices are a list of their own
            return [self._value(within, inner) for inner in value]
        if not isinstance(value, str):
            return value
        return self._image(value) if field in _IMAGES else self.text(value)

    def text(self, text: str) -> str:
        """Returns a hash of the text, or the text itself if it is empty, a number or a word of Kubernetes."""
        # A volume in several zones lists them with two underscores between.
        parts = text.split("__")
        return "__".join(part if _KEPT_VALUES.fullmatch(part) else self._hash(part) for part in parts)

    def _image(self, image: str) -> str:
        """Returns the image's hash with its tag, because an image without a tag has the tag `latest`."""
        name, colon, tag = image.rpartition(":")
        return self._hash(image) if not colon or "/" in tag or "@" in name else f"{self._hash(name)}:{tag}"

    def _hash(self, text: str) -> str:
        return "x" + blake2b(text.encode(), digest_size=_HASH_BYTES, key=self._secret).hexdigest()
