"""Replaces the names in a cluster by hashes, so that the cluster can be shared; decisions stay the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, TypeVar

import msgspec

from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.storage import CSIDriver, PersistentVolumeClaim
from extender.model.workloads import StatefulSet

ObjectT = TypeVar("ObjectT", bound=Object)
_NAMED_KINDS = frozenset({CSIDriver.__name__})  # kinds whose names are product names, which are not confidential
_DRIVERS = "drivers"  # a CSINode's list of drivers, whose names are product names
_IMAGES = frozenset(("image", "names", "reference"))
_IN_TREE = r"kubernetes\.io/(no-provisioner|aws-ebs|azure-(disk|file)|cinder|gce-pd|portworx-volume|vsphere-volume)"
_KEPT_VALUES = re.compile(
    rf"-?\d*|true|false|yes|system-(cluster|node)-critical|0\.0\.0\.0|::|{_IN_TREE}(,{_IN_TREE})*", re.ASCII
)
# Domains in keys that code knows: Kubernetes' own, and those of the topology keys of migrated in-tree drivers.
_KNOWN_DOMAIN = re.compile(
    r"([a-z0-9-]+\.)*(kubernetes|k8s)\.io|topology\.(ebs\.csi\.aws\.com|gke\.io|cinder\.csi\.openstack\.org)"
    r"|topology\.disk\.csi\.azure\.com"
)
_PREFIXED_KEY = re.compile(r"(deviceclass\.resource\.kubernetes\.io/|requests\.|limits\.)(.+)")
_CLASS_QUOTA = re.compile(r"(.+?)(\.(storage|device)class\.(storage|resource)\.k8s\.io/.*)")
_SYSTEM_DOMAIN = re.compile(r"([a-z0-9-]+\.)*(kubernetes|k8s)\.io/.*")
_UNREAD_ANNOTATION = re.compile(
    r"kubectl\.kubernetes\.io/.*|kubernetes\.io/config\.(?!mirror$).*|.*/(leader|preferAvoidPods)"
)
_MANIFEST = re.compile(r"[^/]*/last-(applied|handled)|kapp\.k14s\.io/original|objectset\.rio\.cattle\.io/applied")
"""Annotations in which kubectl, operators and other tools keep the manifest that they applied."""
_SEPARATORS = re.compile("(__|/)")
_TEMPLATE_HASH = "pod-template-hash"
_HASH_BYTES = 6
_KEY_BYTES = 32
_GAP = "  "
_RANK_DIGITS = 6
_HASHED_OR_GAP = re.compile(rf"x([0-9a-f]{{{_RANK_DIGITS}}})?(?P<digest>[0-9a-f]{{{2 * _HASH_BYTES}}})|{_GAP}+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The values of these fields are kept: API words, product names, numbers. Other text may be confidential.
_KEPT_FIELDS = _words("""
    apiVersion kind operator effect phase status reason whenUnsatisfiable nodeAffinityPolicy
    nodeTaintsPolicy protocol restartPolicy action preemptionPolicy accessModes volumeMode volumeBindingMode
    reclaimPolicy provisioner driver attacher plugin schedulerName creationTimestamp deletionTimestamp startTime
    resourceVersion apiGroup resource allocationMode adminAccess expression declaredFeatures bindMountOptions
    maximumVolumeSize matchAttribute distinctAttribute unhealthyPodEvictionPolicy minAvailable maxUnavailable
    lastTransitionTime time completionMode podReplacementPolicy keyType failedIndexes
""")
# The values of these fields are keys of labels, taints or resources, or types of conditions.
_KEY_FIELDS = _words("""
    topologyKey key matchLabelKeys mismatchLabelKeys extendedResourceName resourceName topologyKeys
    type conditionType bindingConditions bindingFailureConditions
""")
# Everything below these fields is kept: quantities, and values that device selectors compare. But names of resources
# are redacted as keys.
_KEPT_PARTS = _words("""
    requests limits allocatable capacity allocatedResources overhead podFixed default defaultRequest attributes cel
    sharedCounters consumesCounters counters consumedCapacity min max maxLimitRequestRatio
""")
_KEYED_BY_NAME = _words("disruptedPods")
_OF_DEVICES = _words("attributes cel sharedCounters consumesCounters counters consumedCapacity")
_LABELS = _words("labels matchLabels nodeSelector selector annotations")


def without_manifests(obj: ObjectT) -> ObjectT:
    """Returns the object without the annotations in which tools keep a manifest of the whole object.

    Such a manifest may contain environment variables and commands, which a snapshot must not reveal.
    """
    annotations = obj.metadata.annotations
    if annotations is None or not any(map(_MANIFEST.match, annotations)):
        return obj
    others = {name: value for name, value in annotations.items() if not _MANIFEST.match(name)} or None
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=others))


def _fields(obj: Object) -> dict[str, Any]:
    """Returns the object's fields as a dict, with only those annotations that kube-scheduler reads."""
    item: dict[str, Any] = msgspec.to_builtins(obj)
    metadata = item.get("metadata", {})
    annotations = {key: value for key, value in (metadata.pop("annotations", None) or {}).items() if _is_read(key)}
    if annotations:
        metadata["annotations"] = annotations
    return item


def _is_read(annotation: str) -> bool:
    return bool(_SYSTEM_DOMAIN.fullmatch(annotation)) and not _UNREAD_ANNOTATION.fullmatch(annotation)


def _is_own_group(api_version: str) -> bool:
    """Returns True for groups of Kubernetes: `apps/v1`, `v1`, `batch.k8s.io/v1`. Others name a company's product."""
    group = api_version.partition("/")[0]
    return "." not in group or bool(_KNOWN_DOMAIN.fullmatch(group))


class Redaction:
    """Replaces names in the objects of one cluster by hashes; equal names get equal hashes.

    The hashes depend on a key, so that a reader of the file cannot guess names and compare their hashes. Keys of
    labels, taints and resources are hashed if they have a domain that is not Kubernetes' own, or contain the name of
    a class. Other keys stay, and so do numbers, names of drivers and provisioners, and attributes of devices.

    Args:
        key: two redactions with the same key give the same hashes; by default the key is random and not stored.
        texts: a dict to which the digest in each hash is added, with the text that it replaces.
    """

    def __init__(self, key: bytes | None = None, texts: dict[str, str] | None = None) -> None:
        self._key = blake2b(token_bytes(_KEY_BYTES) if key is None else key, digest_size=_KEY_BYTES).digest()
        self._texts = texts
        self._ranks: dict[str, str] = {}  # a text -> its place in the order of all texts, as digits of one length
        self._composed: dict[str, str] = {}  # a compound name -> the joined hashes of its parts
        # The name of a claim without its ordinal -> (template, StatefulSet).
        self._claim_bases: dict[str, tuple[str, str]] = {}

    def learn(self, objects: Collection[Object]) -> None:
        """Finds compound names, such as "web-0", so that each part is hashed separately.

        The redacted name of a pod then still contains the redacted name of its owner. Controllers form compound names
        for the ReplicaSets of a Deployment, the pods and claims of a StatefulSet, and the claims of generic ephemeral
        volumes. If possible, call this method with all objects at once, before any object is redacted.
        """
        for obj in objects:
            if isinstance(obj, StatefulSet):
                for template in obj.spec.volume_claim_templates or ():
                    self._claim_bases[f"{template.name}-{obj.name}"] = template.name, obj.name
            elif isinstance(obj, Pod):
                self._learn_pod(obj)
        for obj in objects:
            if isinstance(obj, PersistentVolumeClaim):
                self._learn_claim(obj)

    def keep_order(self, objects: Collection[Object]) -> None:
        """Lets hashes sort as the texts that they replace, because some decisions depend on the order of names.

        The reader of the file then knows which of two hashed texts comes first. Call this method after `learn`, and
        with all objects, because a text that is not in them sorts anywhere.
        """
        texts: dict[str, str] = {}
        unordered = Redaction(self._key, texts)
        unordered.learn(objects)
        for obj in objects:
            unordered.redact(obj)
        self._ranks = {text: f"{rank:0{_RANK_DIGITS}x}" for rank, text in enumerate(sorted(texts.values()))}
        self._composed.clear()
        self.learn(objects)

    def _learn_claim(self, claim: PersistentVolumeClaim) -> None:
        base, _, ordinal = claim.name.rpartition("-")
        owner = claim.controller
        if base in self._claim_bases and ordinal.isdecimal():
            self._compose(*self._claim_bases[base], ordinal)
        elif owner is not None and owner.kind == Pod.__name__ and claim.name.startswith(f"{owner.name}-"):
            self._compose(owner.name, claim.name.removeprefix(f"{owner.name}-"))

    def _learn_pod(self, pod: Pod) -> None:
        owner = pod.controller
        base, _, suffix = pod.name.rpartition("-")
        is_ordinal = owner is not None and owner.kind == StatefulSet.__name__ and owner.name == base
        if is_ordinal and suffix.isdecimal():
            self._compose(base, suffix)
        template_hash = pod.labels.get(_TEMPLATE_HASH)
        if owner is not None and template_hash and owner.name.endswith(f"-{template_hash}"):
            self._compose(owner.name.removesuffix(f"-{template_hash}"), template_hash)
        for volume in pod.spec.volumes or ():
            claim = volume.persistent_volume_claim
            if volume.ephemeral is not None:
                self._compose(pod.name, volume.name)
            elif is_ordinal and claim is not None and claim.claim_name == f"{volume.name}-{pod.name}":
                self._compose(volume.name, pod.name)

    def _compose(self, *parts: str) -> None:
        self._composed["-".join(parts)] = "-".join(map(self.text, parts))

    def redact(self, obj: Object) -> dict[str, Any]:
        """Returns the object's fields as a dict, with hashed names and without annotations that no scheduler reads."""
        item = _fields(obj)
        redacted: dict[str, Any] = self._value("", item)
        if type(obj).__name__ in _NAMED_KINDS and "metadata" in item:
            redacted["metadata"]["name"] = obj.name
        return redacted

    def key(self, kind: str, key: str) -> str:
        """Redacts a key of an object, which is `namespace/name` or a UID."""
        return key if kind in _NAMED_KINDS else self.text(key)

    def _value(self, field: str, value: Any) -> Any:
        """Returns the value of a field with all names in it hashed."""
        if field in _OF_DEVICES:
            return value
        if isinstance(value, Mapping):
            return self._mapping(field, value)
        if field in _KEPT_FIELDS:
            return value
        if isinstance(value, list):
            if field == _DRIVERS:
                return [{**each, **self._value("", {"topologyKeys": each.get("topologyKeys")})} for each in value]
            # A list called `requests` holds requests for devices, which contain names.
            within = "" if field in _KEPT_PARTS else field
            return [self._value(within, inner) for inner in value]
        if not isinstance(value, str) or field in _KEPT_PARTS:
            return value
        if field in _KEY_FIELDS:
            return self._key_name(value)
        return self._image(value) if field in _IMAGES else self.text(value)

    def _mapping(self, field: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if field == "opaque":  # parameters for the driver, which no scheduler reads
            return {"driver": value["driver"]} if "driver" in value else {}
        if field in _KEPT_PARTS and "podFixed" not in value:
            is_by_resource = not any(isinstance(inner, dict) for inner in value.values())
            return {self._key_name(key): inner for key, inner in value.items()} if is_by_resource else value
        if field == "ownerReferences" and not _is_own_group(str(value.get("apiVersion", ""))):
            return {name: self.text(inner) if isinstance(inner, str) else inner for name, inner in value.items()}
        if field in _KEYED_BY_NAME:
            return {self.text(key): inner for key, inner in value.items()}
        if field not in _LABELS:
            return {key: self._value(key, inner) for key, inner in value.items()}
        # A label may have the same name as a field. A `selector` or `nodeSelector` may also have fields.
        return {
            self._key_name(key): self.text(inner) if isinstance(inner, str) else self._value(key, inner)
            for key, inner in value.items()
            if field != "annotations" or _is_read(key)
        }

    def text(self, text: str) -> str:
        """Returns a hash of the text. Numbers, empty texts and values such as `true` or `system-node-critical` stay.

        Parts that are separated by a slash (a request and its subrequest) or by two underscores (the zones of a volume)
        are hashed one by one.
        """
        if _KEPT_VALUES.fullmatch(text):
            return text
        parts = _SEPARATORS.split(text)
        return "".join(
            part if number % 2 or _KEPT_VALUES.fullmatch(part) else self._name(part)
            for number, part in enumerate(parts)
        )

    def _name(self, name: str) -> str:
        return self._composed.get(name) or self._hash(name)

    def _key_name(self, key: str) -> str:
        """Returns the key of a label, a taint or a resource without names that are confidential.

        Hashed are domains that are not known to all clusters, with the name after the slash; and the name of a class,
        as in `deviceclass.resource.kubernetes.io/NAME`, which stays equal to the name of the class.
        """
        if match := _PREFIXED_KEY.fullmatch(key):
            prefix, name = match.groups()
            return prefix + (self.text(name) if prefix.endswith("/") else self._key_name(name))
        if match := _CLASS_QUOTA.fullmatch(key):
            return self.text(match[1]) + match[2]
        domain, slash, name = key.rpartition("/")
        if not slash or _KNOWN_DOMAIN.fullmatch(domain):
            return key
        return f"{self._hash(domain)}/{self._hash(name)}"

    def _image(self, image: str) -> str:
        """Returns the image with its parts hashed. The tag `latest` stays, because an image without a tag means it."""
        name, colon, tag = image.rpartition(":")
        if not colon or "/" in tag:
            return self._hash(image)
        return f"{self._hash(name)}:{tag if tag == 'latest' else self._hash(tag)}"

    def _hash(self, text: str) -> str:
        digest = blake2b(text.encode(), digest_size=_HASH_BYTES, key=self._key).hexdigest()
        if self._texts is not None:
            self._texts[digest] = text
        return f"x{self._ranks.get(text, '')}{digest}"


def translated(answer: str, objects: Iterable[Object], key: bytes) -> str:
    """Replaces the hashes in an answer about a redacted cluster by the original texts.

    The columns of a table stay aligned, unless a text is longer than its column.
    A hash stays if its text is not in the objects. The cluster must have been redacted with the same key.
    """
    texts: dict[str, str] = {}
    redaction = Redaction(key, texts)
    known = list(objects)
    redaction.learn(known)
    for obj in known:
        redaction.redact(obj)
    return "\n".join(_translated_line(line, texts) for line in answer.split("\n"))


def _translated_line(line: str, texts: Mapping[str, str]) -> str:
    surplus = 0  # by how many characters the line has grown since the last gap between columns

    def replacement(match: re.Match[str]) -> str:
        nonlocal surplus
        before = match[0]
        after = " " * max(len(before) - surplus, len(_GAP)) if before.isspace() else texts.get(match["digest"], before)
        surplus += len(after) - len(before)
        return after

    return _HASHED_OR_GAP.sub(replacement, line)
