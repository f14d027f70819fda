"""The manifests of the shape service against the real API server: accepted, and its account may do no more."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from extender.model.kinds import KINDS
from tests.builders import make_node, make_pod
from tests.manifests.rendering import NAMESPACE, apply
from tests.stock.api_client import ApiClient, ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"


def lease(name: str) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}


@pytest.fixture
def extender(control_plane: ControlPlane) -> ApiClient:
    """The API server as the extender's service account sees it."""
    apply(control_plane, "service")
    client = control_plane.client_of(control_plane.service_account_token(NAMESPACE, "extender"))
    # The API server's authorizer follows roles and bindings with watches.
    assert wait_until(lambda: not refused(lambda: client.list("Node")))
    assert wait_until(lambda: not refused(lambda: client.request("POST", LEASES, lease("extender"))))
    return client


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except ApiError as error:
        return error.status == 403
    return False


@pytest.mark.stock
@pytest.mark.clients
def test_the_api_server_accepts_them_and_a_second_time_too(control_plane: ControlPlane) -> None:
    applied = {line.removesuffix(" serverside-applied") for line in apply(control_plane, "service").splitlines()}
    assert applied == {
        "serviceaccount/extender",
        "clusterrole.rbac.authorization.k8s.io/extender-system:extender",
        "clusterrolebinding.rbac.authorization.k8s.io/extender-system:extender",
        "role.rbac.authorization.k8s.io/extender",
        "rolebinding.rbac.authorization.k8s.io/extender",
        "configmap/extender-kube-scheduler",
        "service/extender",
        "service/extender-metrics",
        "poddisruptionbudget.policy/extender",
        "deployment.apps/extender",
    }
    apply(control_plane, "service")


@pytest.mark.stock
@pytest.mark.clients
def test_the_pod_satisfies_the_restricted_pod_security_standard(control_plane: ControlPlane) -> None:
    """The namespace enforces it, on pods: so the deployment's pod is made here, as its controller would."""
    apply(control_plane, "service")
    template = control_plane.client.get("Deployment", "extender", NAMESPACE)["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": "extender", "namespace": NAMESPACE}
    control_plane.client.create(pod)
    weakened = copy.deepcopy(pod)
    weakened["metadata"]["name"] = "weakened"
    del weakened["spec"]["securityContext"]["seccompProfile"]
    with pytest.raises(ApiError, match="violates PodSecurity"):
        control_plane.client.create(weakened)


@pytest.mark.stock
@pytest.mark.clients
def test_the_extender_may_list_and_watch_every_kind_it_knows(extender: ApiClient) -> None:
    asked = [(kind.api_version, kind.plural, verb) for kind in KINDS.values() for verb in ("list", "watch")]
    assert len(asked) >= 18
    assert [question for question in asked if not may(extender, *question)] == []
    assert not may(extender, "v1", "secrets", "list")


def may(client: ApiClient, api_version: str, plural: str, verb: str) -> bool:
    """Returns what the API server's authorizer says to a request over all namespaces."""
    attributes = {"group": api_version.rpartition("/")[0], "resource": plural, "verb": verb}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = client.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {**review, "spec": {"resourceAttributes": attributes}},
    )
    allowed: bool = answer["status"]["allowed"]
    return allowed


@pytest.mark.stock
@pytest.mark.clients
def test_the_extender_may_bind(control_plane: ControlPlane, extender: ApiClient) -> None:
    control_plane.client.create(make_node("n").obj(), make_pod("p").obj())
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    extender.request("POST", "/api/v1/namespaces/default/pods/p/binding", binding)
    assert control_plane.client.get("Pod", "p")["spec"]["nodeName"] == "n"


@pytest.mark.stock
@pytest.mark.clients
def test_the_extender_may_renew_its_own_lease(extender: ApiClient) -> None:
    held = extender.request("GET", f"{LEASES}/extender")
    held["spec"] = {"holderIdentity": "me", "leaseDurationSeconds": 15}
    assert extender.request("PUT", f"{LEASES}/extender", held)["spec"]["holderIdentity"] == "me"


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("GET", "/api/v1/secrets", None, id="read secrets"),
        pytest.param("GET", "/api/v1/configmaps", None, id="read config maps"),
        pytest.param("POST", "/api/v1/namespaces/default/pods", make_pod("q").obj(), id="create pods"),
        pytest.param("DELETE", "/api/v1/namespaces/default/pods/p", None, id="delete pods"),
        pytest.param("PATCH", "/api/v1/namespaces/default/pods/p", {}, id="change pods"),
        pytest.param("PATCH", "/api/v1/nodes/n", {}, id="change nodes"),
        pytest.param("GET", f"{LEASES}/other", None, id="read other leases"),
        pytest.param("PUT", f"{SLICES}/other", {}, id="lead other services"),
        pytest.param(
            "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease("x"), id="lease elsewhere"
        ),
    ],
)
def test_the_extender_may_do_nothing_else(extender: ApiClient, method: str, path: str, body: Any) -> None:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    assert refused(lambda: extender.request(method, path, body, content_type))
