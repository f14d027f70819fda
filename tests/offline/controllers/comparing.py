"""The pods that a workload gets, in a form that can be compared: ours, and those of the real controllers."""

from __future__ import annotations

import re

from extender.model.pod import Pod
from extender.model.storage import PersistentVolumeClaim
from extender.offline.state import ClusterState
from extender.offline.what_if.scenario import Scenario, apply
from extender.offline.what_if.simulation import Simulation
from extender.snapshots.objects import to_objects, to_pod
from tests.builders import Object
from tests.offline.admission.comparing import comparable
from tests.offline.controllers import world

# Labels whose values controllers make up, and those that no selector of a user names.
_MADE_UP = ("pod-template-hash", "controller-uid", "batch.kubernetes.io/controller-uid")
_REVISIONS = ("controller-revision-hash", "pod-template-generation")
_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
# Kinds whose pods have names that others rely on.
_NAMED = "StatefulSet"


def ours(obj: Object) -> Object:
    simulation = Simulation(ClusterState(to_objects(world.nodes())))
    apply(Scenario(create=[(obj, None)]), simulation)
    claims = simulation.state.objects.all(PersistentVolumeClaim)
    pods = [info.pod for info in simulation.state.infos.values()]
    return outcome(obj, pods, [claim.name for claim in claims.values()])


def theirs(obj: Object, pods: list[Object], claims: list[Object]) -> Object:
    return outcome(obj, [to_pod(pod) for pod in pods], [claim["metadata"]["name"] for claim in claims])


def outcome(obj: Object, pods: list[Pod], claims: list[str]) -> Object:
    """Returns {"pods", "claims"}; names that controllers make up are cut off."""
    names = sorted(claims) if obj["kind"] == _NAMED else ["made-up"] * len(claims)
    return {"pods": sorted((_pod(obj, pod) for pod in pods), key=repr), "claims": names}


def _pod(obj: Object, pod: Pod) -> Object:
    fields = comparable(pod)
    fields["labels"] = {key: _label(key, value) for key, value in pod.labels.items() if key not in _REVISIONS}
    for term in _terms(fields["spec"]):
        for expression in term.get("labelSelector", {}).get("matchExpressions", ()):
            expression["values"] = [_label(expression["key"], value) for value in expression["values"]]
    owner = pod.controller
    assert owner is not None
    fields["owner"] = [owner.kind, re.match(r"w(?=-|$)", owner.name)[0]]  # type: ignore[index]  # every name matches
    if obj["kind"] == _NAMED:
        fields["name"] = pod.name
    return fields


def _label(key: str, value: str) -> str:
    if key in _JOB_NAMES:
        return value.split("-")[0]
    return "made-up" if key in _MADE_UP else value


def _terms(spec: Object) -> list[Object]:
    affinity = spec.get("affinity", {}).get("podAntiAffinity", {})
    terms: list[Object] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return terms
