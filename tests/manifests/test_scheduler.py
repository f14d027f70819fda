"""The manifests of `extender schedule`: accepted, and its account may do what the loop does, and no more."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.model.kinds import KINDS
from tests.builders import (
    PodBuilder,
    make_claim,
    make_device_class,
    make_node,
    make_pod,
    make_priority_class,
    make_pvc,
    make_request,
    make_resource_slice,
    make_storage_class,
)
from tests.end_to_end.controllers import HOSTNAME, Volumes, release_claims, working
from tests.end_to_end.scheduling import condition, events, placed
from tests.manifests.rendering import NAMES, NAMESPACE, apply, container_of
from tests.manifests.test_manifests import may, refused
from tests.running import EXTENDER, RunningScheduler
from tests.stock.api_client import ApiClient, ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process, free_port
from tests.stock.waiting import wait_until

NAME = SCHEDULER_NAME = NAMES["scheduler"]
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
GPU = "gpu.example.com"


@pytest.fixture
def account(control_plane: ControlPlane) -> ApiClient:
    """The API server as the service account sees it."""
    apply(control_plane, "scheduler")
    client = control_plane.client_of(control_plane.service_account_token(NAMESPACE, NAME))
    # The API server's authorizer follows roles and bindings with watches.
    assert wait_until(lambda: not refused(lambda: client.list("Node")))
    return client


@pytest.mark.stock
@pytest.mark.clients
def test_the_api_server_accepts_them_and_a_second_time_too(control_plane: ControlPlane) -> None:
    applied = apply(control_plane, "scheduler").splitlines()
    assert len(applied) == 8
    assert all(line.endswith(" serverside-applied") for line in applied)
    apply(control_plane, "scheduler")
    spec = control_plane.client.get("Deployment", NAME, NAMESPACE)["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")


@pytest.mark.stock
@pytest.mark.clients
def test_the_pod_satisfies_the_restricted_pod_security_standard(control_plane: ControlPlane) -> None:
    apply(control_plane, "scheduler")
    template = control_plane.client.get("Deployment", NAME, NAMESPACE)["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": NAME, "namespace": NAMESPACE}
    control_plane.client.create(pod)
    weakened = copy.deepcopy(pod)
    weakened["metadata"]["name"] = "weakened"
    del weakened["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(ApiError, match="violates PodSecurity"):
        control_plane.client.create(weakened)


@pytest.mark.stock
@pytest.mark.clients
def test_it_may_list_and_watch_every_kind_that_is_known_and_no_secrets(account: ApiClient) -> None:
    asked = [(kind.api_version, kind.plural, verb) for kind in KINDS.values() for verb in ("list", "watch")]
    assert [question for question in asked if not may(account, *question)] == []
    for verb in ("get", "list", "watch"):
        assert not may(account, "v1", "secrets", verb)


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("GET", "/api/v1/secrets", None, id="read secrets"),
        pytest.param("GET", "/api/v1/configmaps", None, id="read config maps"),
        pytest.param("POST", "/api/v1/namespaces/default/pods", make_pod("q").obj(), id="create pods"),
        pytest.param("PATCH", "/api/v1/namespaces/default/pods/p", {}, id="change pods"),
        pytest.param("DELETE", "/api/v1/nodes/n", None, id="delete nodes"),
        pytest.param("PATCH", "/api/v1/nodes/n", {}, id="change nodes"),
        pytest.param("DELETE", "/api/v1/persistentvolumes/v", None, id="delete volumes"),
        pytest.param("DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/c", None, id="delete claims"),
        pytest.param("GET", f"{LEASES}/other", None, id="read other leases"),
    ],
)
def test_it_may_do_nothing_else(account: ApiClient, method: str, path: str, body: Any) -> None:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    assert refused(lambda: account.request(method, path, body, content_type))


@pytest.fixture
def scheduler(control_plane: ControlPlane, account: ApiClient, tmp_path: Path) -> Iterator[RunningScheduler]:
    """The Deployment's command with its files, under its account, RBAC being on; at the end nothing was forbidden."""
    kubeconfig = control_plane.write_kubeconfig(NAME, control_plane.service_account_token(NAMESPACE, NAME))
    container = container_of(control_plane.client.get("Deployment", NAME, NAMESPACE))
    port = free_port()
    arguments = [argument.replace("$(EXTENDER_OWN_NAMESPACE)", NAMESPACE) for argument in container["args"]]
    arguments = [f"--bind=127.0.0.1:{port}" if each.startswith("--bind=") else each for each in arguments]
    process = Process("schedule", [EXTENDER, *arguments, "--kubeconfig", kubeconfig], tmp_path / "log")
    scheduler = RunningScheduler(process, port)
    try:
        process.wait_until(scheduler.ready)
        yield scheduler
    finally:
        process.stop()
    logged = process.log.read_text()
    assert "forbidden" not in logged.lower(), logged


def pod(name: str) -> PodBuilder:
    return make_pod(name).scheduler(SCHEDULER_NAME).grace(0)


@pytest.mark.stock
@pytest.mark.clients
def test_it_leads_places_preempts_and_reports(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client = control_plane.client
    assert wait_until(lambda: scheduler.metric(f'extender_leader{{name="{NAME}"}}') == 1)
    assert client.get("Lease", NAME, NAMESPACE)["spec"]["holderIdentity"]
    client.create(make_priority_class("high", 10), make_node("n").capacity(cpu="1", memory="1Gi", pods="10").obj())
    client.create(pod("low").req(cpu="1").obj())
    assert wait_until(lambda: placed(control_plane) == {"low": "n"})
    client.create(pod("high").req(cpu="1").priority_class("high").obj())
    assert wait_until(lambda: placed(control_plane) == {"high": "n"})
    client.create(pod("late").req(cpu="1").obj())
    assert wait_until(lambda: condition(control_plane, "late").get("reason") == "Unschedulable")
    assert wait_until(lambda: {"Scheduled", "Preempted", "FailedScheduling"} <= reasons(control_plane))


def reasons(control_plane: ControlPlane) -> set[str]:
    return {reason for reason in ("Scheduled", "Preempted", "FailedScheduling") if events(control_plane, reason)}


@pytest.mark.stock
@pytest.mark.clients
def test_it_binds_volumes(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client = control_plane.client
    client.create(make_node("n").label({HOSTNAME: "n"}).capacity(cpu="1", memory="1Gi", pods="10").obj())
    client.create(make_storage_class("made"), make_pvc("c", storage_class="made"))
    with working(Volumes(client).act):
        client.create(pod("p").pvc("c").obj())
        assert wait_until(lambda: placed(control_plane) == {"p": "n"})


@pytest.mark.stock
@pytest.mark.clients
def test_it_allocates_devices(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client = control_plane.client
    release_claims(client)
    gpus = {"example.com/gpu": "1"}
    client.create(make_node("n").capacity(cpu="1", memory="1Gi", pods="10").obj())
    client.create(make_device_class("gpu", f'device.driver == "{GPU}"', extended_resource="example.com/gpu"))
    client.create(make_resource_slice("n", GPU, "gpu-0", "gpu-1"))
    client.create(make_claim("c", make_request("device", "gpu")), pod("claimed").resource_claim("c").obj())
    client.create(pod("extended").req(gpus).limit(gpus).obj())
    try:
        assert wait_until(lambda: placed(control_plane) == {"claimed": "n", "extended": "n"})
    finally:
        release_claims(client)
