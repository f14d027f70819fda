"""Checks pods and pod templates as the user wrote them, before defaults are filled in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from extender.offline.manifests.validation import containers, formats, placement, resources, security, types, volumes
from extender.offline.manifests.validation.tree import Fields, fields, items, join, names, texts, with_path

_DELETION = ("orphan", "foregroundDeletion")
_FINALIZERS = ("kubernetes", *_DELETION)
_MOST_SERVERS = 3
_MOST_SEARCHES, _LONGEST_SEARCHES = 32, 2048
_LONGEST_HOST_NAME = 64


def is_stored(pod: Fields) -> bool:
    """Returns True if the manifest was read from an API server, which has already admitted the pod."""
    metadata = fields(pod, "metadata")
    return bool(metadata.get("resourceVersion") or metadata.get("creationTimestamp"))


def of_pod(pod: Fields) -> Iterator[str]:
    """Yields the faults of a pod that is created on its own."""
    metadata, spec = fields(pod, "metadata"), fields(pod, "spec")
    yield from metadata_faults(metadata, formats.dns_subdomain)
    # The API server has already copied the labels named by matchLabelKeys into a stored pod's selectors.
    labels = {} if is_stored(pod) else fields(metadata, "labels")
    yield from _spec(spec, labels, metadata.get("name") or "", "spec", is_template=False)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield "spec.nodeName: cannot be set together with schedulingGates"


def of_template(template: Fields, path: str, claim_templates: Collection[str] = ()) -> Iterator[str]:
    """Yields the faults of a pod template.

    Args:
        claim_templates: the names of a StatefulSet's volumeClaimTemplates, which replace volumes of the same name.
    """
    metadata = fields(template, "metadata")
    yield from volumes.labels_and_annotations(metadata, f"{path}.metadata")
    yield from _finalizers(texts(metadata, "finalizers"), f"{path}.metadata.finalizers")
    spec = fields(template, "spec")
    others = [volume for _, volume in items(spec, "volumes", "") if volume.get("name") not in claim_templates]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claim_templates]
    yield from _spec({**spec, "volumes": [*others, *claims]}, {}, "", join(path, "spec"), is_template=True)


def metadata_faults(metadata: Fields, name_fault: Callable[[str], str | None]) -> Iterator[str]:
    """Yields the faults in an object's metadata.

    `name_fault` checks the name, and also generateName, which is the beginning of a name.
    """
    if metadata.get("name"):
        yield from with_path("metadata.name", name_fault(metadata["name"]))
    if prefix := metadata.get("generateName"):
        # upstream maskTrailingDash
        ending = prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        yield from with_path("metadata.generateName", name_fault(ending))
    if metadata.get("namespace"):
        yield from with_path("metadata.namespace", formats.dns_label(metadata["namespace"]))
    yield from volumes.labels_and_annotations(metadata, "metadata")
    yield from _finalizers(texts(metadata, "finalizers"), "metadata.finalizers")
    yield from _owners(metadata)


def _finalizers(finalizers: Sequence[str], path: str) -> Iterator[str]:
    for number, name in enumerate(finalizers):
        unqualified = None if "/" in name or name in _FINALIZERS else f"{name!r} has no domain, like example.com/{name}"
        yield from with_path(f"{path}[{number}]", formats.qualified_name(name) or unqualified)
    if {*_DELETION} <= {*finalizers}:
        yield f"{path}: {' and '.join(_DELETION)} cannot both be set"


def _owners(metadata: Fields) -> Iterator[str]:
    controllers = 0
    for here, owner in items(metadata, "ownerReferences", "metadata"):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield f"{here}.{field}: is missing"
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        yield "metadata.ownerReferences: only one can have controller: true"


def _spec(spec: Fields, labels: Fields, pod_name: str, path: str, *, is_template: bool) -> Iterator[str]:
    yield from types.faults("V1PodSpec", spec, path)
    yield from volumes.faults(spec, pod_name, path)
    yield from containers.faults(spec, path, is_template=is_template)
    yield from placement.faults(spec, labels, path)
    # A pod's RuntimeClass may add tolerations, so those are checked after `admission` has added them.
    if is_template or not spec.get("runtimeClassName"):
        yield from placement.tolerations(spec, path)
    yield from names(spec, "schedulingGates", path, formats.qualified_name)
    whole, here = fields(spec, "resources"), join(path, "resources")
    yield from resources.of_pod_level(whole, here)
    if is_template:
        yield from resources.disagreements(fields(whole, "requests"), fields(whole, "limits"), here)
    if whole.get("claims") is not None:
        yield f"{here}.claims: cannot be set for a whole pod; only containers have claims"
    yield from _dns(spec, path)
    yield from resources.overhead(fields(spec, "overhead"), join(path, "overhead"))
    yield from security.faults(spec, path)
    yield from _simple_fields(spec, path)


def _dns(spec: Fields, path: str) -> Iterator[str]:
    config, here = fields(spec, "dnsConfig"), f"{path}.dnsConfig"
    servers = config.get("nameservers") or ()
    if len(servers) > _MOST_SERVERS:
        yield f"{here}.nameservers: expected at most {_MOST_SERVERS}, got {len(servers)}"
    if spec.get("dnsPolicy") == "None" and not servers:
        yield f"{here}.nameservers: is missing; dnsPolicy None needs it"
    searches = texts(config, "searches")
    if len(searches) > _MOST_SEARCHES or len(" ".join(searches)) > _LONGEST_SEARCHES:
        yield f"{here}.searches: expected at most {_MOST_SEARCHES}, with {_LONGEST_SEARCHES} characters in total"
    for number, search in enumerate(searches):
        yield from with_path(f"{here}.searches[{number}]", formats.search_domain(search))


def _simple_fields(spec: Fields, path: str) -> Iterator[str]:
    if spec.get("runtimeClassName") is not None:
        yield from with_path(join(path, "runtimeClassName"), formats.dns_subdomain(spec["runtimeClassName"]))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield f"{path}.shareProcessNamespace: cannot be true together with hostPID"
    yield from _host_name(spec.get("hostnameOverride"), spec, f"{path}.hostnameOverride")
    if spec.get("hostUsers") is False:
        for field in ("hostPID", "hostIPC", "hostNetwork"):
            if spec.get(field):
                yield f"{path}.{field}: cannot be true, because hostUsers is false"


def _host_name(name: str | None, spec: Fields, path: str) -> Iterator[str]:
    if name is None:
        return
    yield from with_path(path, formats.dns_subdomain(name))
    if len(name) > _LONGEST_HOST_NAME:
        yield f"{path}: is longer than {_LONGEST_HOST_NAME} characters"
    for field in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(field):
            yield f"{path}: cannot be set, because {field} is true"
