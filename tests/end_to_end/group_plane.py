"""A control plane that serves pod groups, with the gates that kube-scheduler needs for them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.builders import Builder, Object, PodBuilder
from tests.stock.api_client import RESOURCES, ApiError
from tests.stock.build import NEXT_MINOR
from tests.stock.cleaning import clean
from tests.stock.control_plane import ControlPlane

GATES = ("GenericWorkload=true", "WorkloadWithJob=true")
CLAIMS = ("TopologyAwareWorkloadScheduling=true", "DRAWorkloadResourceClaims=true")
TREES = (*CLAIMS, "CompositePodGroup=true")
FLAGS = ("--feature-gates", "GenericWorkload=true")
"""The flags of `extender serve` and `extender schedule`."""
TREE_FLAGS = (FLAGS[0], ",".join((FLAGS[1], *TREES)))
"""The same, with topology constraints, trees of groups, and claims of groups."""


class GroupControlPlane(ControlPlane):
    """Serves PodGroups. A group can be deleted at once, although no controller removes its finalizer."""

    apiserver_flags = (
        f"{ControlPlane.apiserver_flags[0]},PodGroupProtection",
        f"--feature-gates={','.join((*GATES, *TREES))}",
        "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    )


def require_trees() -> None:
    """Skips the test if the kube-scheduler cannot read trees from the API server beside it."""
    if os.environ.get("KUBERNETES_MINOR") == NEXT_MINOR:
        pytest.skip("kube-scheduler 1.38 reads trees in v1beta1, and no API server serves them so yet")


def clean_up(plane: ControlPlane) -> None:
    """Deletes all that tests created; the pods of a Job have a finalizer that only its controller removes."""
    for pod in plane.client.list("Pod", "default"):
        path = RESOURCES["Pod"].path("default", pod["metadata"]["name"])
        plane.client.request("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    clean(plane)


def job(name: str, pods: int, template: PodBuilder) -> Object:
    """A Job that runs this many pods at once."""
    spec = {**template.obj()["spec"], "restartPolicy": "Never"}
    labels: dict[str, Any] = {"metadata": {"labels": {"job": name}}, "spec": spec}
    return {
        **Builder("batch/v1", "Job", name, "default").obj(),
        "spec": {"parallelism": pods, "completions": pods, "template": labels},
    }


def bound(plane: ControlPlane) -> dict[str, str]:
    """Pod name -> node of every pod that is bound."""
    pods = plane.client.list("Pod", "default")
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}


def are_scheduled(plane: ControlPlane, *names: str) -> bool:
    """True if each of the groups is said to be scheduled."""
    return all(group_condition(plane, name) == ("True", "Scheduled", "") for name in names)


def group_condition(plane: ControlPlane, name: str) -> tuple[str, str, str] | None:
    """The status, reason and message of PodGroupInitiallyScheduled; None if there is no such condition."""
    try:
        group = plane.client.request("GET", RESOURCES["PodGroup"].path("default", name))
    except ApiError:
        return None
    conditions = group.get("status", {}).get("conditions", [])
    found = [each for each in conditions if each["type"] == "PodGroupInitiallyScheduled"]
    return (found[0]["status"], found[0]["reason"], found[0].get("message", "")) if found else None
