"""Checks security contexts, and finds fields that a Linux pod or a Windows pod must not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from extender.offline.manifests.validation import formats
from extender.offline.manifests.validation.tree import Fields, fields, items, join, names, with_path

_SYSTEMS = ("linux", "windows")
_LOCALHOST = "Localhost"
_LONGEST_PROFILE = 4095
_PROFILES = ("appArmorProfile", "seLinuxOptions", "seccompProfile")
# Fields that are not allowed in the security contexts of a Windows pod and its containers.
_NOT_OF_WINDOWS_POD = (
    *(*_PROFILES, "fsGroup", "fsGroupChangePolicy", "runAsUser", "runAsGroup", "supplementalGroups"),
    *("supplementalGroupsPolicy", "seLinuxChangePolicy"),
)
_NOT_OF_WINDOWS_CONTAINER = (
    *(*_PROFILES, "capabilities", "readOnlyRootFilesystem", "privileged", "allowPrivilegeEscalation", "procMount"),
    *("runAsUser", "runAsGroup"),
)
# Field that shares a namespace with the host -> the sysctls that a pod with this field cannot set.
_NAMESPACES = {
    "hostNetwork": re.compile(r"net\..*"),
    "hostIPC": re.compile(
        r"kernel\.(sem|shmall|shmmax|shmmni|shm_rmid_forced|msgmax|msgmnb|msgmni)|(kernel\.(shm|msg)|fs\.mqueue)\..*"
    ),
}
_LONGEST_CREDENTIALS = 64 * 1024
_LONGEST_DOMAIN, _LONGEST_USER = 255, 104
_DNS = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DOMAIN = re.compile(rf'[^\\/:*?"<>|.][^\\/:*?"<>|]{{0,14}}|{_DNS}(\.{_DNS})*')
_USER = re.compile(r'(?![. ]+\Z)[^"/\\:;|=,+*?<>@\[\]]+')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def faults(spec: Fields, path: str) -> Iterator[str]:
    """Yields the faults in a pod spec's security contexts, and the fields that its operating system does not allow."""
    yield from _of_pod(spec, path)
    contexts = list(_container_contexts(spec, path))
    for here, context in contexts:
        yield from _of_container(context, here, host_users=spec.get("hostUsers") is not False)
    yield from _host_processes(spec, contexts, path)
    yield from _system(spec, contexts, path)


def _container_contexts(spec: Fields, path: str) -> Iterator[tuple[str, Fields]]:
    for field in ("initContainers", "containers"):
        for here, container in items(spec, field, path):
            yield f"{here}.securityContext", fields(container, "securityContext")


def _of_pod(spec: Fields, path: str) -> Iterator[str]:
    context, here = fields(spec, "securityContext"), join(path, "securityContext")
    yield from names(context, "sysctls", here, lambda _: None)
    for sysctl, each in items(context, "sysctls", here):
        for field, of_namespace in _NAMESPACES.items():
            if spec.get(field) and of_namespace.fullmatch((each.get("name") or "").replace("/", ".")):
                yield f"{sysctl}.name: {each['name']} cannot be set, because {field} is true"


def _of_container(context: Fields, path: str, *, host_users: bool) -> Iterator[str]:
    if context.get("procMount") == "Unmasked" and host_users:
        yield f"{path}.procMount: Unmasked needs hostUsers: false"
    if context.get("allowPrivilegeEscalation") is not False:
        return
    if context.get("privileged"):
        yield f"{path}: privileged cannot be true while allowPrivilegeEscalation is false"
    if "CAP_SYS_ADMIN" in (fields(context, "capabilities").get("add") or ()):
        yield f"{path}: the capability CAP_SYS_ADMIN cannot be added while allowPrivilegeEscalation is false"


def seccomp_profile(profile: Fields, path: str) -> Iterator[str]:
    local, here = profile.get("localhostProfile"), f"{path}.localhostProfile"
    if profile.get("type") != _LOCALHOST:
        yield from _unused_profile(local, here)
    elif local is None:
        yield f"{here}: is missing; type {_LOCALHOST} needs it"
    else:
        yield from with_path(here, formats.relative_path(local))


def app_armor_profile(profile: Fields, path: str) -> Iterator[str]:
    local, here = profile.get("localhostProfile"), f"{path}.localhostProfile"
    if profile.get("type") != _LOCALHOST:
        yield from _unused_profile(local, here)
    elif not local:
        yield f"{here}: is missing; type {_LOCALHOST} needs it"
    elif local != local.strip():
        yield f"{here}: {local!r} begins or ends with a space"
    elif len(local) > _LONGEST_PROFILE:
        yield f"{here}: is longer than {_LONGEST_PROFILE} characters"


def _unused_profile(local: str | None, path: str) -> Iterator[str]:
    if local is not None:
        yield f"{path}: can only be set with type {_LOCALHOST}"


def windows_options(options: Fields, path: str) -> Iterator[str]:
    name, credentials = options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec")
    if name is not None:
        yield from with_path(f"{path}.gmsaCredentialSpecName", formats.dns_subdomain(name))
    if credentials is not None and not 0 < len(credentials.encode()) <= _LONGEST_CREDENTIALS:
        yield f"{path}.gmsaCredentialSpec: expected 1 to {_LONGEST_CREDENTIALS} bytes"
    if options.get("runAsUserName") is not None and not _is_windows_user(options["runAsUserName"]):
        yield f"{path}.runAsUserName: {options['runAsUserName']!r} is not a user: expected USER or DOMAIN\\USER"


def _is_windows_user(text: str) -> bool:
    domain, has_domain, user = text.rpartition("\\")
    is_domain = _DOMAIN.fullmatch(domain) is not None and len(domain) <= _LONGEST_DOMAIN
    is_user = _USER.fullmatch(user) is not None and len(user.encode()) <= _LONGEST_USER
    return is_user and (is_domain or not has_domain) and not _CONTROL.search(text)


def _host_processes(spec: Fields, contexts: list[tuple[str, Fields]], path: str) -> Iterator[str]:
    """Yields the faults of hostProcess (Windows): it must be the same for all containers, and needs hostNetwork."""
    of_pod = fields(spec, "securityContext", "windowsOptions").get("hostProcess")
    count = 0
    for here, context in contexts:
        own = fields(context, "windowsOptions").get("hostProcess")
        if own is not None and of_pod is not None and own != of_pod:
            yield f"{here}.windowsOptions.hostProcess: expected {str(of_pod).lower()}, as for the pod"
        count += bool(of_pod if own is None else own)
    if count and count != len(contexts):
        yield f"{path}: hostProcess is true for some containers; expected all of them"
    if count and not spec.get("hostNetwork"):
        yield f"{path}.hostNetwork: expected true, because hostProcess is true"


def _system(spec: Fields, contexts: list[tuple[str, Fields]], path: str) -> Iterator[str]:
    name, here = fields(spec, "os").get("name"), f"{path}.securityContext"
    if spec.get("os") is not None and name not in _SYSTEMS:
        yield f"{path}.os.name: {name!r} is not one of {', '.join(_SYSTEMS)}"
    if name == "linux":
        for where, context in ((here, fields(spec, "securityContext")), *contexts):
            yield from _forbidden(context, ("windowsOptions",), where, "linux")
    if name == "windows":
        yield from _of_windows(spec, contexts, path)


def _of_windows(spec: Fields, contexts: list[tuple[str, Fields]], path: str) -> Iterator[str]:
    context = {**fields(spec, "securityContext")}
    context["sysctls"] = context.get("sysctls") or None
    yield from _forbidden(context, (*_NOT_OF_WINDOWS_POD, "sysctls"), f"{path}.securityContext", "windows")
    for here, own in contexts:
        yield from _forbidden(own, _NOT_OF_WINDOWS_CONTAINER, here, "windows")
    true = {field: spec.get(field) or None for field in ("hostPID", "hostIPC")}
    own_fields = ("resources", "hostUsers", "shareProcessNamespace", *true)
    yield from _forbidden({**spec, **true}, own_fields, path, "windows")


def _forbidden(parent: Fields, keys: tuple[str, ...], path: str, system: str) -> Iterator[str]:
    for key in keys:
        if parent.get(key) is not None:
            yield f"{join(path, key)}: cannot be set, because os.name is {system}"
