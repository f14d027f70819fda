"""Checks the volumes and device claims of a pod, and the claims that are made for it."""

from __future__ import annotations

from collections.abc import Iterator

from extender.errors import MalformedQuantity
from extender.model import formats
from extender.model.quantity import nano
from extender.offline.manifests.validation.placement import label_map, label_selector
from extender.offline.manifests.validation.tree import Fields, fields, items, join, names, texts, with_path

_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")


def faults(spec: Fields, pod_name: str, path: str) -> Iterator[str]:
    """Yields the faults in the volumes of a pod spec; `pod_name` is empty for a template."""
    yield from names(spec, "volumes", path, formats.dns_label)
    ephemeral = [volume for _, volume in items(spec, "volumes", "") if volume.get("ephemeral") is not None]
    created = {f"{pod_name}-{volume.get('name')}" for volume in ephemeral}
    for here, volume in items(spec, "volumes", path):
        yield from _source(volume, here)
        claim = fields(volume, "persistentVolumeClaim").get("claimName")
        if pod_name and claim in created:
            yield f"{here}.persistentVolumeClaim.claimName: {claim} is created for an ephemeral volume of this pod"
    yield from _device_claims(spec, path)


def claim_spec(spec: Fields, path: str) -> Iterator[str]:
    """Yields the faults in the spec of a PersistentVolumeClaim."""
    modes = texts(spec, "accessModes")
    if not modes:
        yield f"{path}.accessModes: is empty; expected at least one"
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield f"{path}.accessModes: {mode!r} is not one of {', '.join(_ACCESS_MODES)}"
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        yield f"{path}.accessModes: ReadWriteOncePod cannot be used with others"
    if spec.get("volumeMode") not in (None, *_VOLUME_MODES):
        yield f"{path}.volumeMode: {spec['volumeMode']!r} is not one of {', '.join(_VOLUME_MODES)}"
    if not _is_positive(fields(spec, "resources", "requests").get("storage")):
        yield f"{path}.resources.requests.storage: expected more than 0"
    yield from label_selector(fields(spec, "selector"), join(path, "selector"))


def _is_positive(quantity: str | int | float | None) -> bool:
    try:
        return nano(quantity) > 0
    except MalformedQuantity:
        return False


def _source(volume: Fields, path: str) -> Iterator[str]:
    sources = [key for key, value in volume.items() if key != "name" and value is not None]
    if len(sources) > 1:
        yield f"{path}: expected one kind of volume, got {' and '.join(sources)}"
    template = fields(volume, "ephemeral", "volumeClaimTemplate")
    if template:
        here = f"{path}.ephemeral.volumeClaimTemplate"
        yield from label_map(fields(template, "metadata", "labels"), f"{here}.metadata.labels")
        yield from claim_spec(fields(template, "spec"), f"{here}.spec")


def _device_claims(spec: Fields, path: str) -> Iterator[str]:
    yield from names(spec, "resourceClaims", path, formats.dns_label)
    for here, claim in items(spec, "resourceClaims", path):
        sources = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key) is not None]
        if len(sources) != 1:
            yield f"{here}: expected either resourceClaimName or resourceClaimTemplateName"
        for source in sources:
            yield from with_path(join(here, source), formats.dns_subdomain(claim[source]))
