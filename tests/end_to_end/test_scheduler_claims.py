"""`extender schedule` allocates devices and reserves claims, on the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.builders import (
    Object,
    PodBuilder,
    make_claim,
    make_device,
    make_device_class,
    make_request,
    make_resource_slice,
)
from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.controllers import release_claims
from tests.end_to_end.scheduling import asking, condition, events, placed, sized
from tests.running import RunningScheduler
from tests.stock.api_client import ApiClient, ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow, pytest.mark.usefixtures("scene")]

GPU = "gpu.example.com"
CLASS = make_device_class("gpu", f'device.driver == "{GPU}"', extended_resource="example.com/gpu")
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def client(control_plane: ControlPlane) -> Iterator[ApiClient]:
    release_claims(control_plane.client)
    yield control_plane.client
    release_claims(control_plane.client)


def needs(control_plane: ControlPlane, gate: str) -> None:
    """Leaves the test out where the API server drops the fields of a feature that is off by default in its version."""
    if not control_plane.gates().get(gate):
        pytest.skip(f"the feature gate {gate} is off by default")


def wanted(name: str) -> Object:
    return make_claim(name, make_request("device", "gpu"))


def using(name: str, *claims: str) -> PodBuilder:
    pod = asking(name, "1")
    for claim in claims:
        pod = pod.resource_claim(claim)
    return pod


def standing(client: ApiClient, name: str) -> tuple[list[str], list[str]]:
    """The devices that the claim has, and the pods it is reserved for."""
    status = client.get("ResourceClaim", name).get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", [])
    return [each["device"] for each in results], [each["name"] for each in status.get("reservedFor", [])]


def offer(client: ApiClient, *devices: str | Object, node: str = "n1") -> None:
    client.create(sized(node, "4").obj(), CLASS, make_resource_slice(node, GPU, *devices))


def test_devices_are_allocated_and_the_claim_reserved(
    client: ApiClient, control_plane: ControlPlane, scheduler: RunningScheduler
) -> None:
    offer(client, "gpu-0")
    client.create(wanted("c"), using("p", "c").obj())
    assert wait_until(lambda: placed(control_plane)) == {"p": "n1"}
    claim = client.get("ResourceClaim", "c")
    assert standing(client, "c") == (["gpu-0"], ["p"])
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert claim["status"]["allocation"]["allocationTimestamp"]
    [term] = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]


def test_each_device_goes_to_one_claim(
    client: ApiClient, control_plane: ControlPlane, scheduler: RunningScheduler
) -> None:
    offer(client, *(f"gpu-{i}" for i in range(4)))
    client.create(*(wanted(f"c{i}") for i in range(5)))
    client.create(*(using(f"p{i}", f"c{i}").req(cpu="100m").obj() for i in range(5)))
    assert wait_until(lambda: len(placed(control_plane)) == 4)
    [left] = {f"p{i}" for i in range(5)} - placed(control_plane).keys()
    assert wait_until(lambda: "cannot allocate all claims" in condition(control_plane, left).get("message", ""))
    assert condition(control_plane, left)["reason"] == "Unschedulable"
    given = [device for i in range(5) for device in standing(client, f"c{i}")[0]]
    assert sorted(given) == [f"gpu-{i}" for i in range(4)]


def test_pods_share_a_claim(client: ApiClient, control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    offer(client, "gpu-0")
    client.create(sized("n2", "4").obj(), wanted("c"), *(using(f"p{i}", "c").obj() for i in range(3)))
    assert wait_until(lambda: placed(control_plane) == dict.fromkeys(("p0", "p1", "p2"), "n1"))
    devices, pods = standing(client, "c")
    assert (devices, sorted(pods)) == (["gpu-0"], ["p0", "p1", "p2"])


def test_a_claim_is_made_for_extended_resources(
    client: ApiClient, control_plane: ControlPlane, scheduler: RunningScheduler
) -> None:
    needs(control_plane, "DRAExtendedResource")
    offer(client, "gpu-0", "gpu-1")
    gpus = {"example.com/gpu": "2"}
    client.create(asking("p", "1").req(gpus, cpu="1").limit(gpus, cpu="1").obj())
    assert wait_until(lambda: placed(control_plane)) == {"p": "n1"}
    [claim] = client.list("ResourceClaim", "default")
    pod = client.get("Pod", "p")
    recorded = pod["status"]["extendedResourceClaimStatus"]
    assert recorded["resourceClaimName"] == claim["metadata"]["name"]
    assert claim["metadata"]["name"].startswith("p-extended-resources-")
    assert [each["resourceName"] for each in recorded["requestMappings"]] == ["example.com/gpu"]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    devices, pods = standing(client, claim["metadata"]["name"])
    assert (sorted(devices), pods) == (["gpu-0", "gpu-1"], ["p"])


def test_a_pod_waits_until_its_device_is_attached(
    client: ApiClient, control_plane: ControlPlane, scheduler: RunningScheduler
) -> None:
    needs(control_plane, "DRADeviceBindingConditions")
    offer(client, make_device("gpu-0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]))
    client.create(wanted("c"), using("p", "c").obj())
    assert wait_until(lambda: standing(client, "c") == (["gpu-0"], ["p"]))
    assert wait_until(lambda: events(control_plane, "BindingConditionsPending"))
    assert placed(control_plane) == {}
    attached = {"type": "Attached", "status": "True", "reason": "Done", "message": ""}
    attached["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    device = {"driver": GPU, "pool": "n1", "device": "gpu-0", "conditions": [attached]}
    client.patch("ResourceClaim", "c", {"status": {"devices": [device]}}, subresource="status")
    assert wait_until(lambda: placed(control_plane)) == {"p": "n1"}


def test_an_allocation_that_keeps_its_pod_away_is_given_up(
    client: ApiClient, control_plane: ControlPlane, scheduler: RunningScheduler
) -> None:
    offer(client, "gpu-0")
    client.create(wanted("c"))
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]}
    results = [{"request": "device", "driver": GPU, "pool": "gone", "device": "gpu-0"}]
    allocation = {"devices": {"results": results}, "nodeSelector": here}
    client.patch("ResourceClaim", "c", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}})
    client.patch("ResourceClaim", "c", {"status": {"allocation": allocation}}, subresource="status")
    client.create(using("p", "c").obj())
    assert wait_until(lambda: placed(control_plane)) == {"p": "n1"}
    assert standing(client, "c") == (["gpu-0"], ["p"])


@contextmanager
def no_binding_of(client: ApiClient, pod: str) -> Iterator[None]:
    """The API server refuses the pod's Binding."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}]
    validations = [{"expression": f"object.metadata.name != '{pod}'", "message": "not this one"}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": validations, "failurePolicy": "Fail"}
    header = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "no-binding"}}
    policy = {**header, "kind": "ValidatingAdmissionPolicy", "spec": spec}
    use = {"policyName": "no-binding", "validationActions": ["Deny"]}
    kinds = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    client.request("POST", f"{_ADMISSION}/{kinds[0]}", policy)
    client.request(
        "POST", f"{_ADMISSION}/{kinds[1]}", {**header, "kind": "ValidatingAdmissionPolicyBinding", "spec": use}
    )
    try:
        yield
    finally:
        for kind in reversed(kinds):
            client.request("DELETE", f"{_ADMISSION}/{kind}/no-binding")


def test_a_binding_that_is_refused_undoes_everything(
    client: ApiClient, control_plane: ControlPlane, scheduler: RunningScheduler
) -> None:
    offer(client, "gpu-0")
    client.create(wanted("c"), wanted("other"))
    with no_binding_of(client, "p"):
        # The policy takes effect a moment later: a pod that no scheduler takes shows when.
        client.create(using("p", "c").gate("later").obj())
        assert wait_until(lambda: refuses(client, "p"))
        client.patch("Pod", "p", {"spec": {"schedulingGates": None}})
        assert wait_until(lambda: "not this one" in condition(control_plane, "p").get("message", ""))
        client.delete("Pod", "p")
        assert wait_until(lambda: standing(client, "c") == ([], []))
        assert "finalizers" not in client.get("ResourceClaim", "c")["metadata"]
        client.create(using("q", "other").obj())
        assert wait_until(lambda: placed(control_plane)) == {"q": "n1"}
        assert standing(client, "other") == (["gpu-0"], ["q"])


def refuses(client: ApiClient, pod: str) -> bool:
    """Returns whether the policy keeps the pod from being bound; the pod is gated, so it is never bound otherwise."""
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"name": "n1"}}
    try:
        client.request("POST", f"/api/v1/namespaces/default/pods/{pod}/binding?dryRun=All", binding)
    except ApiError as error:
        return "not this one" in str(error)
    return False


def test_what_a_killed_scheduler_has_left_is_put_right(
    client: ApiClient, control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    needs(control_plane, "DRADeviceBindingConditions")
    offer(client, "gpu-0")
    attached = make_device("gpu-1", bindingConditions=["Attached"], bindingFailureConditions=["Broken"])
    client.create(make_resource_slice("n1", "nic.example.com", attached))
    client.create(make_device_class("nic", 'device.driver == "nic.example.com"'))
    client.create(make_claim("c", make_request("device", "nic")))
    mine = "--scheduler-name", "mortal"  # the pod is none of the module's scheduler's, which lives
    with start_scheduler(*mine) as first:
        client.create(using("p", "c").scheduler("mortal").obj())
        assert wait_until(lambda: standing(client, "c") == (["gpu-1"], ["p"]))
        first.process.kill()
    client.patch("Node", "n1", {"spec": {"unschedulable": True}})
    with start_scheduler(*mine):
        assert wait_until(lambda: standing(client, "c") == ([], []))
        assert placed(control_plane) == {}
