"""`extender schedule` binds volumes, and has them made, on the real API server."""

from __future__ import annotations

import pytest

from tests.builders import Object, expression, make_pv, make_pvc, make_storage_class, node_term
from tests.end_to_end.controllers import HOSTNAME, Volumes, working
from tests.end_to_end.scheduling import asking, condition, placed, sized
from tests.running import RunningScheduler
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.usefixtures("scene")]

STATIC = make_storage_class("static", provisioner="kubernetes.io/no-provisioner")
MADE = make_storage_class("made")


def node(name: str) -> Object:
    return sized(name, "4").label({HOSTNAME: name}).obj()


def put_volume(control_plane: ControlPlane, name: str, node_name: str) -> None:
    """A free volume that only the node reaches."""
    here = [node_term(expression(HOSTNAME, "In", node_name))]
    control_plane.client.create(make_pv(name, storage_class="static", node_terms=here))
    control_plane.client.patch("PersistentVolume", name, {"status": {"phase": "Available"}}, subresource="status")


def test_a_pod_goes_where_its_volume_is(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client = control_plane.client
    client.create(node("n1"), node("n2"), STATIC, make_pvc("c", storage_class="static"))
    put_volume(control_plane, "v", "n2")
    with working(Volumes(client).act):
        client.create(asking("p", "1").pvc("c").obj())
        assert wait_until(lambda: placed(control_plane)) == {"p": "n2"}
    volume, claim = client.get("PersistentVolume", "v"), client.get("PersistentVolumeClaim", "c")
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert claim["spec"]["volumeName"] == "v"


def test_the_pod_is_not_bound_before_its_claim_is(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client = control_plane.client
    client.create(node("n1"), STATIC, make_pvc("c", storage_class="static"))
    put_volume(control_plane, "v", "n1")
    client.create(asking("p", "1").pvc("c").obj(), asking("free", "1").obj())
    assert wait_until(lambda: client.get("PersistentVolume", "v")["spec"].get("claimRef"))
    assert wait_until(lambda: client.get("Pod", "p")["status"].get("nominatedNodeName")) == "n1"
    assert wait_until(lambda: placed(control_plane)) == {"free": "n1"}
    with working(Volumes(client).act):
        assert wait_until(lambda: placed(control_plane).get("p")) == "n1"


def test_a_volume_is_made_where_the_pod_is_to_run(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client = control_plane.client
    client.create(node("n1"), MADE, make_pvc("c", storage_class="made"))
    with working(Volumes(client).act):
        client.create(asking("p", "1").pvc("c").obj())
        assert wait_until(lambda: placed(control_plane)) == {"p": "n1"}
    assert client.get("PersistentVolumeClaim", "c")["spec"]["volumeName"].startswith("pvc-")


def test_a_node_where_no_volume_can_be_made_is_left(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client, volumes = control_plane.client, Volumes(control_plane.client, refused_nodes=("n1",))
    client.create(node("n1"), MADE, make_pvc("c", storage_class="made"))
    with working(volumes.act):
        client.create(asking("p", "1").pvc("c").obj())
        assert wait_until(lambda: volumes.refused)
        failure = 'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"'
        assert wait_until(lambda: condition(control_plane, "p").get("message") == failure)
        client.patch("Node", "n1", {"spec": {"unschedulable": True}})
        client.create(node("n2"))
        assert wait_until(lambda: placed(control_plane)) == {"p": "n2"}


def test_of_two_pods_one_gets_the_only_volume(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client = control_plane.client
    client.create(node("n1"), STATIC, *(make_pvc(f"c{i}", storage_class="static") for i in range(2)))
    put_volume(control_plane, "v", "n1")
    with working(Volumes(client).act):
        client.create(*(asking(f"p{i}", "1").pvc(f"c{i}").obj() for i in range(2)))
        assert wait_until(lambda: placed(control_plane))
        [(lucky, _)] = placed(control_plane).items()
        other = "p1" if lucky == "p0" else "p0"
        refusal = "1 node(s) didn't find available persistent volumes to bind"
        assert wait_until(lambda: refusal in condition(control_plane, other).get("message", ""))
        put_volume(control_plane, "another", "n1")
        assert wait_until(lambda: placed(control_plane).get(other)) == "n1"
    bound = {client.get("PersistentVolumeClaim", f"c{i}")["spec"]["volumeName"] for i in range(2)}
    assert bound == {"v", "another"}


def test_many_pods_with_volumes_of_their_own(control_plane: ControlPlane, scheduler: RunningScheduler) -> None:
    client, many = control_plane.client, range(40)
    client.create(*(sized(f"n{i}", "8").label({HOSTNAME: f"n{i}"}).obj() for i in range(5)), STATIC, MADE)
    client.create(*(make_pvc(f"c{i}", storage_class="static" if i % 2 else "made") for i in many))
    for i in many:
        if i % 2:
            put_volume(control_plane, f"v{i}", f"n{i % 5}")
    with working(Volumes(client).act):
        client.create(*(asking(f"p{i}", "100m").pvc(f"c{i}").obj() for i in many))
        assert wait_until(lambda: len(placed(control_plane)) == len(many))
    nodes = placed(control_plane)
    for i in many:
        name = client.get("PersistentVolumeClaim", f"c{i}")["spec"]["volumeName"]
        [term] = client.get("PersistentVolume", name)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == [nodes[f"p{i}"]]
