"""Every number that a tenant or a question writes: none is turned into as many objects, and none gives a traceback.

Each question is answered in a child process that may take 256 MiB; two billion objects of any kind take more. It has
20 s, because the machine may be busy.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from extender import Cluster, Scenario
from extender.cli.main import main
from extender.cli.mcp_server import _copies
from extender.errors import ExtenderError
from extender.runtime.questions import in_child
from tests.builders import (
    HOSTNAME,
    Object,
    make_claim,
    make_composite_pod_group,
    make_device,
    make_device_class,
    make_node,
    make_pdb,
    make_pod,
    make_pod_group,
    make_pvc,
    make_request,
    make_resource_slice,
    make_slice,
)

MIB = 1 << 20
NODE = make_node("n").label({HOSTNAME: "n"}).capacity(cpu="8", memory="16Gi", pods="110").obj()
BUILT = range(1001, 100_001)
"""As many pods are built and placed if a caller asks for them, which takes seconds; larger numbers are refused."""
NUMBERS = st.one_of(
    st.sampled_from([-(2**63), -1, 0, 1, 2, 1000, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 10**30]),
    st.integers(-(2**33), 2**64).filter(lambda number: number not in BUILT),
)
pytestmark = pytest.mark.hypothesis


def pod(**spec: Any) -> Object:
    built = make_pod("p").req(cpu="1").obj()
    built["spec"] |= spec
    return built


def workload(kind: str, group: str, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": pod()["spec"]}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "w"}}}
    metadata = {"name": "w", "namespace": "default"}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": {**selector, "template": template, **spec}}


def with_claim(claim: Object, *devices: Object) -> list[Object]:
    return [
        make_device_class("gpu"),
        make_resource_slice("n", "gpu.example.com", *devices),
        claim,
        make_pod("p").resource_claim("c").obj(),
    ]


def gang(number: int) -> list[Object]:
    return [make_pod_group("g", number), make_pod("p").group("g").req(cpu="1").obj()]


def tree(number: int) -> list[Object]:
    group = make_pod_group("g", 1, parentCompositePodGroupName="t")
    return [make_composite_pod_group("t", number), group, make_pod("p").group("g").req(cpu="1").obj()]


def shared(**policy: Any) -> list[Object]:
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    device = {**make_device("d", capacity=capacity), "allowMultipleAllocations": True}
    request = make_request("r", "gpu", capacity={"requests": {"memory": "3"}})
    return with_claim(make_claim("c", request), device)


def counted(quantity: str) -> list[Object]:
    """A device that takes its memory from counters which others of its pool share."""
    consumed = [{"counterSet": "s", "counters": {"memory": {"value": quantity}}}]
    objects = with_claim(make_claim("c", make_request("r", "gpu")), {**make_device("d"), "consumesCounters": consumed})
    objects[1]["spec"]["sharedCounters"] = [{"name": "s", "counters": {"memory": {"value": quantity}}}]
    return objects


def with_images(number: int) -> Object:
    node = make_node("m").obj()
    node["status"]["images"] = [{"names": ["i"], "sizeBytes": number}]
    return node


def weighted(number: int) -> Object:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "Exists"}]}
    return {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": number, "preference": term}]}
    }


def spread(**fields: int) -> Object:
    constraint = {"topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, "maxSkew": 1}
    return pod(topologySpreadConstraints=[{**constraint, **fields}])


PLACES: Mapping[str, Callable[[int], list[Object]]] = {
    "minCount": gang,
    "minGroupCount": tree,
    "count of a request": lambda n: with_claim(make_claim("c", make_request("r", "gpu", count=n)), make_device("d")),
    "capacity of a request": lambda n: with_claim(
        make_claim("c", make_request("r", "gpu", capacity={"requests": {"memory": str(n)}})),
        make_device("d", capacity={"memory": "80Gi"}),
    ),
    "capacity of a device": lambda n: with_claim(
        make_claim("c", make_request("r", "gpu")), make_device("d", capacity={"memory": str(n)})
    ),
    "step of a range": lambda n: shared(default="1", validRange={"min": "1", "step": str(n)}),
    "minimum of a range": lambda n: shared(default="1", validRange={"min": str(n), "step": "2"}),
    "priority": lambda n: [pod(priority=n)],
    "weight": lambda n: [pod(affinity=weighted(n))],
    "quantity": lambda n: [make_pod("p").req(cpu=str(n), memory=f"{n}Gi").obj()],
    "pods of a node": lambda n: [make_node("m").capacity(cpu="8", pods=str(n)).obj(), pod()],
    "maxSkew": lambda n: [spread(maxSkew=n)],
    "minDomains": lambda n: [spread(minDomains=n)],
    "host port": lambda n: [
        pod(containers=[{"name": "c", "image": "i", "ports": [{"hostPort": n, "containerPort": 1}]}])
    ],
    "slices of a pool": lambda n: [
        make_device_class("gpu"),
        make_slice("s", "gpu.example.com", "n", "d", slices=n, nodeName="n"),
        make_claim("c", make_request("r", "gpu")),
        make_pod("p").resource_claim("c").obj(),
    ],
    "replicas": lambda n: [workload("Deployment", "apps/v1", replicas=n), pod()],
    "ordinals": lambda n: [workload("StatefulSet", "apps/v1", replicas=2, ordinals={"start": n}), pod()],
    "parallelism": lambda n: [workload("Job", "batch/v1", parallelism=n, completions=n), pod()],
    "deletion cost": lambda n: [make_pod("p").annotation({"controller.kubernetes.io/pod-deletion-cost": str(n)}).obj()],
    "minAvailable": lambda n: [make_pdb("b", {}, minAvailable=n), pod()],
    "maxUnavailable in percent": lambda n: [make_pdb("b", {}, maxUnavailable=f"{n}%"), pod()],
    "size of an image": lambda n: [with_images(n), pod()],
    "grace": lambda n: [pod(terminationGracePeriodSeconds=n)],
    "seconds of a toleration": lambda n: [pod(tolerations=[{"operator": "Exists", "tolerationSeconds": n}])],
}
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["²", "9" * 5000, "1e308", "nan", "inf", "-0", "1_0"]))
SUFFIX = r"([eE][-+]?[0-9]{1,12}|[numkMGTPE]|[KMGTPE]i)?"
EXPONENTS = st.from_regex(rf"[-+]?[0-9]{{1,4}}(\.[0-9]{{0,4}})?{SUFFIX}", fullmatch=True)
QUANTITIES: Mapping[str, Callable[[str], list[Object]]] = {
    "request": lambda q: [make_pod("p").req(cpu=q, memory=q).obj()],
    "pods of a node": lambda q: [make_node("m").capacity(cpu=q, memory=q, pods=q).obj(), pod()],
    "overhead": lambda q: [pod(overhead={"cpu": q})],
    "capacity of a device": lambda q: with_claim(
        make_claim("c", make_request("r", "gpu", capacity={"requests": {"memory": q}})),
        make_device("d", capacity={"memory": q}),
    ),
    "step of a range": lambda q: shared(default=q, validRange={"min": q, "max": q, "step": q}),
    "counters": lambda q: counted(q),
    "volume": lambda q: [make_pvc("v", storage=q), make_pod("p").pvc("v").obj()],
}
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "--replicas": ("simulate", "-f", "MANIFEST", "--replicas={}"),
    "--scale": ("simulate", "--scale=default/deploy/w={}"),
    "--add-node": ("simulate", "--add-node=n={}"),
    "--seed": ("simulate", "--seed={}"),
    "--weight": ("capacity", "-f", "MANIFEST", "--weight={}"),
    "--most": ("capacity", "-f", "MANIFEST", "--most={}"),
    "--max-moved": ("compare", "--policy", "POLICY", "--max-moved={}"),
    "--timeout": ("explain", "default/p", "--timeout={}"),
    "jsonpath": ("explain", "-o", "jsonpath={{.pending[{}]}}"),
    "slice": ("explain", "-o", "jsonpath={{.pending[{}:]}}"),
    "manifest": ("explain", "-f", "MANIFEST"),
}


def ask(objects: list[Object], scenario: Scenario | None = None, template: Object | None = None) -> None:
    """Asks everything; an ExtenderError is a clear answer, too."""
    with suppress(ExtenderError):
        cluster = Cluster.from_objects([NODE, *objects])
        for question in (
            lambda: [each.changes for each in [cluster.explain("default/p")]],
            lambda: cluster.explain_pending(),
            lambda: [each.changes for each in [cluster.explain_group("default/g")]],
            lambda: cluster.simulate(scenario),
            lambda: cluster.capacity([template or objects[-1]]),
        ):
            with suppress(ExtenderError):
                question()


def check(work: Callable[[], None]) -> None:
    in_child(work, seconds=200, memory_bytes=256 * MIB)


def command(arguments: list[str]) -> None:
    """Runs the command; fails if it raises an unexpected error."""
    sys.argv = ["extender", *arguments]
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        with suppress(SystemExit):
            main()


EXPLORING = os.environ.get("HYPOTHESIS_PROFILE") == "exploring"
_CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
few = settings(deadline=None, max_examples=400 if EXPLORING else 3, suppress_health_check=_CALM)


@few
@given(place=st.sampled_from(sorted(PLACES)), number=NUMBERS)
@example(place="minCount", number=-1)
@example(place="parallelism", number=2**31 - 1)
@example(place="count of a request", number=2**63 - 1)
def test_a_number_in_an_object_is_not_turned_into_as_many_objects(place: str, number: int) -> None:
    check(lambda: ask(PLACES[place](number)))


@few
@given(place=st.sampled_from(["ordinals", "parallelism", "replicas"]), number=NUMBERS)
def test_a_number_in_a_new_workload_or_a_scenario_is_not_turned_into_as_many_objects(place: str, number: int) -> None:
    new, deployment = PLACES[place](number)[0], workload("Deployment", "apps/v1", replicas=1)
    check(lambda: ask([pod()], Scenario(create=[(new, None)]), new))
    check(lambda: ask([deployment, pod()], Scenario(create=[(new, number)], add_nodes=[("n", number)])))
    check(lambda: ask([deployment, pod()], Scenario(scale=[("default/deploy/w", number)])))


@few
@given(place=st.sampled_from(sorted(QUANTITIES)), quantity=EXPONENTS)
@example(place="request", quantity="1e999999999999")
@example(place="pods of a node", quantity="9e18")
def test_a_quantity_is_exact_or_a_clear_error(place: str, quantity: str) -> None:
    check(lambda: ask(QUANTITIES[place](quantity)))


@few
@given(option=st.sampled_from(sorted(ARGUMENTS)), text=st.one_of(NUMBERS.map(str), TEXTS))
@example(option="--timeout", text="nan")
@example(option="--timeout", text="1e308")
@example(option="slice", text="-")
@example(option="jsonpath", text="9" * 5000)
@example(option="--replicas", text="20000")
@example(option="--add-node", text="10000")
def test_an_argument_is_a_number_or_a_clear_error(tmp_path: Path, option: str, text: str) -> None:
    files = {name: tmp_path / f"{name}.json" for name in ("CLUSTER", "MANIFEST", "POLICY")}
    deployment = workload("Deployment", "apps/v1", replicas=1)
    files["CLUSTER"].write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, deployment, pod()]}))
    files["MANIFEST"].write_text(json.dumps(workload("ReplicaSet", "apps/v1", replicas=1)))
    files["POLICY"].write_text("{}")
    arguments = [str(files.get(part, part)).format(text) for part in ARGUMENTS[option]]
    check(lambda: command([*arguments, "--cluster", str(files["CLUSTER"])]))


@given(st.one_of(NUMBERS.map(str), TEXTS))
def test_an_assistants_number_of_nodes_is_a_number_or_a_clear_error(text: str) -> None:
    with suppress(ExtenderError):
        assert _copies(f"n={text}")[1] >= 0
