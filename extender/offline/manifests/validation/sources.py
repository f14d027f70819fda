"""Checks the sources of volumes, by the type of the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from extender.offline.manifests.validation import formats
from extender.offline.manifests.validation.placement import label_selector
from extender.offline.manifests.validation.tree import Fields, fields, items, with_path

# The first three letters of an iSCSI name -> the form of the whole name.
_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[-A-Za-z0-9.]+:[^,;*&$|\s]+\Z"),
    "eui": re.compile(r"\Aeui.[A-Za-z0-9]{16}\Z"),
    "naa": re.compile(r"\Anaa.[A-Za-z0-9]{32}\Z"),
}
_AZURE_KINDS = ("Dedicated", "Managed", "Shared")
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
_SHORTEST_LIFE = 3600
_LONGEST_TENANT = 64
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*")
_FIELD_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_BY_KEY = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)
_RESERVED = re.compile(r"\.(kubernetes|k8s)\.io\Z")


def _iscsi(source: Fields, path: str) -> Iterator[str]:
    for field in ("iqn", "initiatorName"):
        name = source.get(field)
        form = _ISCSI_NAMES.get((name or "")[:3])
        if (name or (name is not None and field == "initiatorName")) and not (form and form.search(name)):
            yield f"{path}.{field}: {name!r} is not an iSCSI name; expected one like iqn.2024-05.com.example:disk"
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        yield f"{path}.secretRef: is missing; CHAP needs it"


def _fibre_channel(source: Fields, path: str) -> Iterator[str]:
    if source.get("targetWWNs") and source.get("lun") is None:
        yield f"{path}.lun: is missing; targetWWNs needs it"


def _flocker(source: Fields, path: str) -> Iterator[str]:
    if "/" in (source.get("datasetName") or ""):
        yield f"{path}.datasetName: must not contain '/'"


def _flex_volume(source: Fields, path: str) -> Iterator[str]:
    for key in fields(source, "options"):
        if _RESERVED.search(f".{key.partition('/')[0].lower()}"):
            yield f"{path}.options.{key}: the domains kubernetes.io and k8s.io are reserved"


def _nfs(source: Fields, path: str) -> Iterator[str]:
    directory = source.get("path") or "/"
    if not directory.startswith("/"):
        yield f"{path}.path: expected an absolute path, got {directory!r}"


def _secret(source: Fields, path: str) -> Iterator[str]:
    for field in ("secretRef", "nodePublishSecretRef"):
        if source.get(field) is not None and not source[field].get("name"):
            yield f"{path}.{field}.name: is missing"


def _quobyte(source: Fields, path: str) -> Iterator[str]:
    if not all(map(_HOST_AND_PORT.fullmatch, (source.get("registry") or ":").split(","))):
        yield f"{path}.registry: expected HOST:PORT, or several with commas, got {source['registry']!r}"
    if len(source.get("tenant") or "") > _LONGEST_TENANT:
        yield f"{path}.tenant: is longer than {_LONGEST_TENANT} characters"


def _azure_disk(source: Fields, path: str) -> Iterator[str]:
    uri = source.get("diskURI")
    prefix = "/subscriptions/" if source.get("kind") == "Managed" else "https://"
    if uri and source.get("kind") in (None, *_AZURE_KINDS) and not uri.startswith(prefix):
        yield f"{path}.diskURI: expected a text that begins with {prefix} for kind {source.get('kind') or 'Shared'}"


def _projected(source: Fields, path: str) -> Iterator[str]:
    written: set[str] = set()
    for here, projection in items(source, "sources", path):
        parts = [name for name, value in projection.items() if value is not None]
        if len(parts) > 1:
            yield f"{here}: expected one source, got {' and '.join(parts)}"
        yield from _trust_bundle(projection.get("clusterTrustBundle"), f"{here}.clusterTrustBundle")
        yield from _certificate(projection.get("podCertificate"), f"{here}.podCertificate")
        for file_path in _written(projection):
            if file_path in written:
                yield f"{here}: {file_path} is written by another source too"
            written.add(file_path)


def _written(projection: Fields) -> Iterator[str]:
    """Yields the paths of the files that one source of a projected volume writes, if the manifest names them."""
    for part in ("secret", "configMap", "downwardAPI"):
        yield from (item["path"] for _, item in items(fields(projection, part), "items", "") if item.get("path"))
    if projection.get("clusterTrustBundle") is not None:
        yield projection["clusterTrustBundle"].get("path") or ""
    certificate = fields(projection, "podCertificate")
    yield from (certificate[field] for field in _CERTIFICATE_PATHS if certificate.get(field))


def _trust_bundle(bundle: Fields | None, path: str) -> Iterator[str]:
    if bundle is None:
        return
    if (bundle.get("name") is None) == (bundle.get("signerName") is None):
        yield f"{path}: expected either name or signerName"
    if bundle.get("name") is not None and bundle.get("labelSelector") is not None:
        yield f"{path}.labelSelector: cannot be set together with name"
    yield from label_selector(fields(bundle, "labelSelector"), f"{path}.labelSelector")


def _certificate(certificate: Fields | None, path: str) -> Iterator[str]:
    if certificate is None:
        return
    if not any(certificate.get(field) for field in _CERTIFICATE_PATHS):
        yield f"{path}: expected at least one of {', '.join(_CERTIFICATE_PATHS)}"
    if (certificate.get("maxExpirationSeconds") or _SHORTEST_LIFE) < _SHORTEST_LIFE:
        yield f"{path}.maxExpirationSeconds: expected at least {_SHORTEST_LIFE}"


def _downward_file(file: Fields, path: str) -> Iterator[str]:
    """Yields the faults in one file of a downward API volume."""
    yield from field_path(fields(file, "fieldRef"), _FIELD_PATHS, f"{path}.fieldRef")
    resource = file.get("resourceFieldRef")
    if resource is not None and not resource.get("containerName"):
        yield f"{path}.resourceFieldRef.containerName: is missing"


def field_path(reference: Fields, allowed: tuple[str, ...], path: str) -> Iterator[str]:
    """Yields the faults in a reference to a field of the pod.

    Args:
        allowed: the fields that can be read; a label or an annotation always can.
    """
    text = reference.get("fieldPath") or ""
    if key := _BY_KEY.fullmatch(text):
        name = key[2].lower() if key[1] == "annotations" else key[2]
        yield from with_path(f"{path}.fieldPath", formats.qualified_name(name))
    elif text and text not in allowed:
        yield f"{path}.fieldPath: {text!r} cannot be read; expected {', '.join(allowed)}"
    if reference.get("apiVersion") not in (None, "", "v1"):
        yield f"{path}.apiVersion: expected v1"


def _downward_api(source: Fields, path: str) -> Iterator[str]:
    for here, file in items(source, "items", path):
        yield from _downward_file(file, here)


# Type of a volume source -> the function that checks it.
CHECKS: Mapping[str, Callable[[Fields, str], Iterator[str]]] = {
    "V1ISCSIVolumeSource": _iscsi,
    "V1FCVolumeSource": _fibre_channel,
    "V1FlockerVolumeSource": _flocker,
    "V1FlexVolumeSource": _flex_volume,
    "V1NFSVolumeSource": _nfs,
    "V1QuobyteVolumeSource": _quobyte,
    "V1AzureDiskVolumeSource": _azure_disk,
    "V1ProjectedVolumeSource": _projected,
    "V1DownwardAPIVolumeSource": _downward_api,
    "V1DownwardAPIProjection": _downward_api,
    **{f"V1{kind}VolumeSource": _secret for kind in ("CSI", "Cinder", "StorageOS")},
}
