"""Gangs by coscheduling's label and PodGroups, beside a kube-scheduler that knows no groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import Builder, Object, make_node, make_pod
from tests.running import ONLY_EXTENDER, serve
from tests.stock.api_client import ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

LABEL = "scheduling.x-k8s.io/pod-group"
GROUP, PLURAL = "scheduling.x-k8s.io", "podgroups"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{PLURAL}.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"},
    },
    "spec": {
        "group": GROUP,
        "names": {"kind": "PodGroup", "plural": PLURAL, "singular": "podgroup"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUPS = f"/apis/{GROUP}/v1alpha1/namespaces/default/{PLURAL}"


def is_served(plane: ControlPlane) -> bool:
    try:
        plane.client.request("GET", GROUPS)
    except ApiError:
        return False
    return True


def group(name: str, members: int) -> Object:
    return {**Builder(f"{GROUP}/v1alpha1", "PodGroup", name, "default").obj(), "spec": {"minMember": members}}


def bound(plane: ControlPlane) -> list[str]:
    pods = plane.client.list("Pod", "default")
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]


def test_a_gang_is_bound_whole_or_not_at_all(control_plane: ControlPlane, tmp_path: Path) -> None:
    """kube-scheduler's own filters are off too, so that it is the webhook alone that knows what fits."""
    client = control_plane.client
    client.request("POST", CRDS, CRD)
    try:
        assert wait_until(lambda: is_served(control_plane))
        client.create(*(make_node(f"n{i}").capacity(cpu="4", memory="64Gi", pods="110").obj() for i in range(2)))
        client.request("POST", GROUPS, group("gang", 5))
        with (
            serve(control_plane.kubeconfig, tmp_path, "--coscheduling", "--activate-after-seconds", "2") as extender,
            control_plane.scheduler(extender.configuration(plugins=ONLY_EXTENDER)),
        ):
            client.create(*(make_pod(f"gang-{i}").req(cpu="2").label({LABEL: "gang"}).obj() for i in range(5)))
            assert wait_until(lambda: extender.metric('extender_group_plans_total{result="refused"}') >= 1)
            assert wait_until(lambda: len(extender.calls("filter")) >= 5)
            assert bound(control_plane) == []
            client.create(make_node("n2").capacity(cpu="4", memory="64Gi", pods="110").obj())
            assert wait_until(lambda: len(bound(control_plane)) == 5)
            # A round that timed out on a busy machine is planned again, and a late bind may then ask for an old node.
            in_time = extender.metric('extender_gang_binds_refused_total{reason="timeout"}') == 0
            assert not in_time or extender.metric('extender_binds_total{result="unfit"}') == 0
    finally:
        client.request("DELETE", f"{CRDS}/{PLURAL}.{GROUP}")
