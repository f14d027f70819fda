"""Reads the cases of pod groups: the objects to create, and the outcomes to expect, step by step.

The files in `cases/` hold facts of Kubernetes' own integration tests. An object is written as its name, its labels and
the fields of its spec; what every object of a kind has in common is added here.

Four of the 176 cases of 1.37 are not here:

- TestPodGroupPostFilterIteration and TestPodGroupCycleStatePreserved test the extension point PodGroupPostFilter, which
  rules cannot implement.
- TestPodGroupDependentRequiredValidation tests the API server alone.
- The first case of TestPodGroupRequeueRemainingOnSchedulingSuccess needs a scheduler that pauses between two attempts:
  the loop here preempts for the pod before the node arrives that the pod is to wait for.

Of the new cases of 1.38 (`since_1_38*.yaml`, `shrunk_node.yaml`), which the loop plays beside the API server of 1.37,
these are not here:

- TestPodGroupAsyncPreemption, TestPodGroupPreemptionRespectsWaitingPod, TestDisablePodGroupPreemption and
  TestTopologyAwareSchedulingWithMultiplePlacementPlugins need plugins in Go, which wait until the test lets them go on.
- TestPodGroupPriorityClassPreemptionPolicy tests what the API server of 1.38 fills in. Two cases without a
  preemptionPolicy, and three of TestCPGQueueing that lower minGroupCount, need that API server, too.
- Two cases of TestPodGroupInterleaving need a scheduler that waits until all pods have been created.
- Not made yet: TestPodGroupPreemptionPolicyCompatibility, TestPodGroupPreemptionAndNominatedNodeNameScenarios,
  TestCompositePodGroupPreemptionStatus, TestCompositePodGroupPreemption_NominatedNodeNameRespected, and the new cases
  of TestPreemption and TestDynamicResourcesFilter.

In the other cases that call ScheduleOne by hand, the loop runs freely, and the case waits for the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.builders import Builder, Object, make_pdb, make_pv, make_pvc
from tests.stock.api_client import RESOURCES

FOLDER = Path(__file__).parent / "cases"
CLAIM_MODE = "ReadWriteOncePod"


@dataclass(frozen=True)
class Case:
    """One case with one set of feature gates.

    Attributes:
        scores: the scores of nodes by a rule of the user, by name.
        slots: how many pods with the label `test-plugin` a rule of Reserve lets in.
        inject: a pod (`pod`) that is created while another one (`when`) is being filtered.
        bind_fails: a pod that a rule of PreBind refuses once.
        counts_post_filter: a rule of PostFilter counts its calls.
        version: the version of Kubernetes that the loop follows, although the API server is 1.37's.
    """

    name: str
    gates: tuple[str, ...]
    steps: list[dict[str, Any]]
    scores: dict[str, int] = field(default_factory=dict)
    slots: int | None = None
    inject: Object | None = None
    bind_fails: str | None = None
    counts_post_filter: bool = False
    version: str = "1.37"

    @property
    def needs_rules(self) -> bool:
        """True if the loop must be started with rules for this case alone."""
        rules = (self.scores, self.slots is not None, self.inject, self.bind_fails, self.counts_post_filter)
        return any(rules)

    @property
    def id(self) -> str:
        return f"{self.name} [{self.version}+{'+'.join(self.gates)}]"


def all_cases() -> list[Case]:
    """Returns every case once for each set of gates, those with equal versions and gates together."""
    cases = []
    for file in sorted(FOLDER.glob("*.yaml")):
        for entry in yaml.load(file.read_text(), yaml.CSafeLoader):
            more = {key: entry[key] for key in entry.keys() - {"case", "gates", "steps"}}
            cases += [Case(entry["case"], tuple(gates), entry["steps"], **more) for gates in entry["gates"]]
    return sorted(cases, key=lambda case: (case.version, case.gates))


def manifest(kind: str, fields: Mapping[str, Any]) -> Object:
    """Returns an object of this kind as the API server takes it."""
    rest = dict(fields)
    resource = RESOURCES[kind]
    builder = Builder(resource.group_version, kind, rest.pop("name"), "default" if resource.namespaced else None)
    builder.label(rest.pop("labels", {}))
    document = builder.obj()
    if kind == "Node":
        capacity = rest.pop("capacity")
        document["status"] = {"capacity": capacity, "allocatable": capacity}
    elif kind == "Pod":
        rest = _pod_spec(rest)
    return {**document, "spec": rest}


def _pod_spec(fields: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "registry.k8s.io/pause:3.10.2"}
    container["resources"] = {"requests": fields.pop("requests", {})}
    if "host_port" in fields:
        port = fields.pop("host_port")
        container["ports"] = [{"hostPort": port, "containerPort": port}]
    spec = {**fields, "containers": [container]}
    for short, name in (("node", "nodeName"), ("grace", "terminationGracePeriodSeconds")):
        if short in spec:
            spec[name] = spec.pop(short)
    if "group" in spec:
        spec["schedulingGroup"] = {"podGroupName": spec.pop("group")}
    if "claim" in spec:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": spec.pop("claim")}}]
    return spec


def claim_with_volume(name: str) -> list[Object]:
    """Returns a claim that is bound to a volume which only one pod may use."""
    source = {"hostPath": {"path": "/mnt", "type": "DirectoryOrCreate"}}
    volume = make_pv(f"volume-{name}", access_mode=CLAIM_MODE, source=source)
    return [volume, make_pvc(name, access_mode=CLAIM_MODE, volume=f"volume-{name}", storage_class="")]


def budget(fields: Mapping[str, Any]) -> Object:
    spec = {key: value for key, value in fields.items() if key not in ("name", "selector")}
    return make_pdb(fields["name"], fields["selector"]["matchLabels"], **spec)
