"""A JSON client of the API server for tests: http.client and nothing else, so that nothing is hidden."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlencode

Object = dict[str, Any]

_CONNECTIONS = 8
# The API server learns of a PriorityClass by a watch of its own, which takes a moment.
_UNKNOWN_CLASS = "no PriorityClass with name"
_TRIES = 50
_PAUSE_SECONDS = 0.1
_STRICT = "fieldValidation=Strict"


class Resource(NamedTuple):
    group_version: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Without a namespace, the path of all namespaces."""
        root = "/api/" if "/" not in self.group_version else "/apis/"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{self.group_version}{scope}/{self.plural}" + (f"/{name}" if name else "")


RESOURCES = {
    "Namespace": Resource("v1", "namespaces", False),
    "Node": Resource("v1", "nodes", False),
    "Pod": Resource("v1", "pods", True),
    "ConfigMap": Resource("v1", "configmaps", True),
    "Secret": Resource("v1", "secrets", True),
    "Event": Resource("v1", "events", True),
    "Service": Resource("v1", "services", True),
    "EndpointSlice": Resource("discovery.k8s.io/v1", "endpointslices", True),
    "NetworkPolicy": Resource("networking.k8s.io/v1", "networkpolicies", True),
    "LimitRange": Resource("v1", "limitranges", True),
    "ResourceQuota": Resource("v1", "resourcequotas", True),
    "ServiceAccount": Resource("v1", "serviceaccounts", True),
    "ReplicationController": Resource("v1", "replicationcontrollers", True),
    "PersistentVolume": Resource("v1", "persistentvolumes", False),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims", True),
    "Deployment": Resource("apps/v1", "deployments", True),
    "ReplicaSet": Resource("apps/v1", "replicasets", True),
    "StatefulSet": Resource("apps/v1", "statefulsets", True),
    "DaemonSet": Resource("apps/v1", "daemonsets", True),
    "Job": Resource("batch/v1", "jobs", True),
    "CronJob": Resource("batch/v1", "cronjobs", True),
    "PodDisruptionBudget": Resource("policy/v1", "poddisruptionbudgets", True),
    "RuntimeClass": Resource("node.k8s.io/v1", "runtimeclasses", False),
    "PodGroup": Resource("scheduling.k8s.io/v1beta1", "podgroups", True),
    "CompositePodGroup": Resource("scheduling.k8s.io/v1alpha3", "compositepodgroups", True),
    "PriorityClass": Resource("scheduling.k8s.io/v1", "priorityclasses", False),
    "StorageClass": Resource("storage.k8s.io/v1", "storageclasses", False),
    "CSINode": Resource("storage.k8s.io/v1", "csinodes", False),
    "CSIDriver": Resource("storage.k8s.io/v1", "csidrivers", False),
    "CSIStorageCapacity": Resource("storage.k8s.io/v1", "csistoragecapacities", True),
    "VolumeAttachment": Resource("storage.k8s.io/v1", "volumeattachments", False),
    "DeviceClass": Resource("resource.k8s.io/v1", "deviceclasses", False),
    "DeviceTaintRule": Resource("resource.k8s.io/v1", "devicetaintrules", False),
    "ResourceClaim": Resource("resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": Resource("resource.k8s.io/v1", "resourceclaimtemplates", True),
    "ResourceSlice": Resource("resource.k8s.io/v1", "resourceslices", False),
    "Lease": Resource("coordination.k8s.io/v1", "leases", True),
    "Role": Resource("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": Resource("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": Resource("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
}


class ApiError(Exception):
    """The API server's refusal; `status` is the HTTP status and `body` its Status object."""

    def __init__(self, request: str, status: int, body: Object) -> None:
        super().__init__(f"{request}: {status} {body.get('message', body)}")
        self.status = status
        self.body = body


class ApiClient:
    """Speaks to 127.0.0.1:port as the holder of the token; one kept connection a thread."""

    def __init__(self, port: int, token: str, ca_file: str, timeout_seconds: float = 30) -> None:
        self._port = port
        self._token = token
        self._context = ssl.create_default_context(cafile=ca_file)
        self._timeout_seconds = timeout_seconds
        self._local = threading.local()

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Sends and returns JSON (text where the answer is none). Raises ApiError for every status from 400 on."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        status, is_json, data = self._exchange(method, path, None if body is None else json.dumps(body), headers)
        answer: Any = json.loads(data) if is_json else data.decode()
        if status >= 400:
            raise ApiError(f"{method} {path}", status, answer if is_json else {"message": answer})
        return answer

    def _exchange(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, bool, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect(self._timeout_seconds)
            self._local.connection = connection
        reused = connection.sock is not None
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, "json" in response.headers.get("Content-Type", ""), response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._local.connection = None
            if reused and isinstance(error, http.client.RemoteDisconnected):  # the server had let the idle one go
                return self._exchange(method, path, body, headers)
            raise

    def _connect(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=timeout_seconds)

    def watch(self, kind: str, seconds: int, **query: str) -> Iterator[Object]:
        """Yields events, from what there is at first, until the time is over. The watch is open when this returns."""
        return self._resumed(self._watch(kind, seconds, "0", query), kind, time.monotonic() + seconds, query)

    def _resumed(
        self, events: Iterator[Object], kind: str, ends_at: float, query: Mapping[str, str]
    ) -> Iterator[Object]:
        """Yields the events, and those after them where the API server ends the watch of a client that is too slow."""
        version = "0"
        while True:
            for event in events:
                version = event["object"]["metadata"]["resourceVersion"]
                yield event
            if (left := int(ends_at - time.monotonic())) <= 0:
                return
            events = self._watch(kind, left, version, query)

    def _watch(self, kind: str, seconds: int, version: str, query: Mapping[str, str]) -> Iterator[Object]:
        connection = self._connect(seconds + self._timeout_seconds)
        chosen = urlencode({**query, "watch": 1, "resourceVersion": version, "timeoutSeconds": seconds})
        path = f"{RESOURCES[kind].path()}?{chosen}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
        response = connection.getresponse()
        if response.status != 200:
            raise ApiError(f"GET {path}", response.status, {"message": response.read().decode()})
        return (json.loads(line) for line in response)

    def create(self, *objects: Object) -> list[Object]:
        """Creates objects of any kind in RESOURCES, in order. A field that the API does not know is an error."""
        return [self._create_one(item) for item in objects]

    def _create_one(self, item: Object) -> Object:
        path = f"{RESOURCES[item['kind']].path(item['metadata'].get('namespace'))}?{_STRICT}"
        for _ in range(_TRIES):
            try:
                created: Object = self.request("POST", path, item)
                return created
            except ApiError as error:
                if _UNKNOWN_CLASS not in str(error):
                    raise
            time.sleep(_PAUSE_SECONDS)
        raise AssertionError(f"the PriorityClass of {item['metadata']['name']} does not exist")

    def create_many(self, objects: Iterable[Object]) -> list[Object]:
        """Creates objects by several connections, in any order; returns them in theirs, as the API server has them."""
        with ThreadPoolExecutor(_CONNECTIONS) as threads:
            return [created for (created,) in threads.map(self.create, objects)]

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        answer: Object = self.request("GET", RESOURCES[kind].path(namespace, name))
        return answer

    def list(self, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """`query`: labelSelector, fieldSelector, ..."""
        path = RESOURCES[kind].path(namespace) + (f"?{urlencode(query)}" if query else "")
        items: list[Object] = self.request("GET", path)["items"]
        return items

    def patch(
        self, kind: str, name: str, patch: Object, *, namespace: str = "default", subresource: str = ""
    ) -> Object:
        """A merge patch, of the object or of a subresource such as status."""
        path = RESOURCES[kind].path(namespace, name) + (f"/{subresource}" if subresource else "")
        answer: Object = self.request("PATCH", path, patch, "application/merge-patch+json")
        return answer

    def delete(self, kind: str, name: str, *, namespace: str = "default") -> None:
        """At once: no kubelet is there to end a pod gracefully."""
        self.request("DELETE", RESOURCES[kind].path(namespace, name), {"gracePeriodSeconds": 0})

    def delete_all(self, kind: str, namespace: str | None = None, **query: str) -> None:
        """All of a kind in one namespace, or of a kind that has none."""
        path = RESOURCES[kind].path(namespace) + (f"?{urlencode(query)}" if query else "")
        self.request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
