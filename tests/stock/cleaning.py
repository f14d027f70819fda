"""Empties a cluster between tests: milliseconds, where a fresh control plane takes seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.stock.api_client import RESOURCES, ApiClient, ApiError, Resource
from tests.stock.control_plane import ControlPlane

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_RBAC_KINDS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_KEPT = {("ConfigMap", "kube-system"), ("Lease", "kube-system")}  # the API server's own
_FOLDERS = {"nodes": "minions", "services": "services/specs", "replicationcontrollers": "controllers"}


def clean(plane: ControlPlane) -> None:
    """Deletes all that tests create; what the API server makes for itself stays.

    The keys in etcd say which kinds there are. To ask the API server to delete all of each kind took 120 requests.
    """
    client, keys = plane.client, plane.new_keys()
    for namespace in client.list("Namespace"):
        if namespace["metadata"]["name"] not in SYSTEM_NAMESPACES:
            _delete_namespace(client, namespace["metadata"]["name"], keys)
    for kind, resource in RESOURCES.items():
        if kind == "Namespace":
            continue
        for scope in SYSTEM_NAMESPACES if resource.namespaced else (None,):
            if (kind, scope) not in _KEPT and _is_stored(keys, resource, scope):
                with _unless_unserved():
                    _delete_kind(client, kind, scope)


def _is_stored(keys: Sequence[str], resource: Resource, namespace: str | None) -> bool:
    """Returns True if one of the keys is of an object of this kind, in this namespace."""
    folder = f"/registry/{_FOLDERS.get(resource.plural, resource.plural)}/" + (f"{namespace}/" if namespace else "")
    return any(key.startswith(folder) for key in keys)


@contextmanager
def _unless_unserved() -> Iterator[None]:
    """Lets pass that an older API server does not have the kind."""
    try:
        yield
    except ApiError as error:
        if error.status != 404:
            raise


def _delete_kind(client: ApiClient, kind: str, namespace: str | None) -> None:
    if kind in _RBAC_KINDS:
        client.delete_all(kind, namespace, labelSelector="kubernetes.io/bootstrapping!=rbac-defaults")
    elif kind == "PriorityClass" or (kind, namespace) == ("Service", "default"):
        for item in client.list(kind, namespace):
            name = item["metadata"]["name"]
            if name != "kubernetes" and not name.startswith("system-"):
                client.delete(kind, name)
    else:
        client.delete_all(kind, namespace)


def _delete_namespace(client: ApiClient, name: str, keys: Sequence[str]) -> None:
    """Empties it and takes its finalizer away, as the namespace controller would."""
    for kind, resource in RESOURCES.items():
        if resource.namespaced and _is_stored(keys, resource, name):
            with _unless_unserved():
                client.delete_all(kind, name)
    client.delete("Namespace", name)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
    with suppress(ApiError):  # gone already
        client.request("PUT", RESOURCES["Namespace"].path(name=name) + "/finalize", body)
