"""What the manifests grant is what is used: every kind that is followed, the few calls that write, and no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from extender.model.kinds import KINDS
from tests.manifests.rendering import MANIFESTS

Grant = tuple[str, str, str]
LEASES = "coordination.k8s.io"
FOLLOWED = {
    (kind.api_version.rpartition("/")[0], kind.path.rpartition("/")[2], verb)
    for kind in KINDS.values()
    for verb in ("list", "watch")
}
LEASE = {(LEASES, "leases", verb) for verb in ("create", "get", "update")}
LEADER_EVENTS = {("events.k8s.io", "events", "create")}
ACTIVATE = {("", "pods/status", "patch")}
BIND = {("", "pods/binding", "create")}
WRITTEN_BY_SCHEDULE = {
    ("", "pods", "delete"),
    ("", "pods/status", "patch"),
    ("", "persistentvolumes", "patch"),
    ("", "persistentvolumeclaims", "patch"),
    *(("resource.k8s.io", "resourceclaims", verb) for verb in ("get", "create", "delete", "patch")),
    ("resource.k8s.io", "resourceclaims/status", "patch"),
    ("scheduling.k8s.io", "podgroups/status", "patch"),
    ("scheduling.k8s.io", "compositepodgroups/status", "patch"),
    ("resource.k8s.io", "resourceclaims/binding", "patch"),
    *(("events.k8s.io", "events", verb) for verb in ("create", "patch")),
}


SLICE = {("discovery.k8s.io", "endpointslices", verb) for verb in ("create", "get", "update")}


def granted(shape: str) -> Iterator[Grant]:
    documents = yaml.safe_load_all((MANIFESTS / shape / "all.yaml").read_text())
    for document in (each for each in documents if each["kind"].endswith("Role")):
        for rule in document.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((group, resource, verb) for verb in rule["verbs"])


@pytest.mark.parametrize(
    ("shape", "used"),
    [
        pytest.param("beside", FOLLOWED | BIND | ACTIVATE | LEASE | LEADER_EVENTS, id="beside"),
        pytest.param("service", FOLLOWED | BIND | ACTIVATE | LEASE | LEADER_EVENTS | SLICE, id="service"),
        pytest.param("scheduler", FOLLOWED | BIND | LEASE | WRITTEN_BY_SCHEDULE, id="scheduler"),
    ],
)
def test_nothing_unused_is_granted(shape: str, used: set[Grant]) -> None:
    assert set(granted(shape)) == used
