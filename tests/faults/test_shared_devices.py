"""The loop is killed again and again while pods that share devices fill all nodes: no share is given away twice.

Only what the API server holds is counted, after each kill and at the end. A share is written in two forms: in a claim
of its own, and as annotations that leave in the Binding. `make test-faults` has 200 nodes of 8 devices and 100 kills
for each form; `make test` has 6 nodes and 3 kills for claims, `make test-all` also for annotations.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import yaml

from examples.rules.gpu_share import COUNT, INDEX, MEMORY
from extender.model.quantity import nano
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_request,
    make_resource_slice,
)
from tests.faults.lives import Lives
from tests.faults.sizes import SEED
from tests.running import SCHEDULER_NAME
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

KILLS = 100 if os.environ.get("FAULTS") else 3
NODES, DEVICES, GIB = 2 * KILLS, 8, 80
"""Each node has this many devices of this much memory."""
SETTLE_SECONDS = 120 + 5 * KILLS
RULES = Path(__file__).parents[2] / "examples" / "rules"
DRIVER = "gpu.example.com"
ATTEMPTS = [
    f'scheduler_schedule_attempts_total{{profile="{SCHEDULER_NAME}",result="{result}"}}'
    for result in ("scheduled", "unschedulable")
]

pytestmark = [pytest.mark.stock, pytest.mark.slow, pytest.mark.timeout(300 + 60 * KILLS)]


@pytest.fixture
def plane(stock_binaries: Binaries, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(stock_binaries, tmp_path / "plane") as running:
        yield running


@pytest.fixture
def loop(plane: ControlPlane, tmp_path: Path) -> Iterator[Lives]:
    enabled = {"filter": "gpu_share:has_gpu", "bind": "gpu_share:pick_gpu"}
    plugins = {point: {"enabled": [{"name": name}]} for point, name in enabled.items()}
    policy = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER_NAME, "plugins": plugins}],
    }
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    flags = ("--kubeconfig", str(plane.kubeconfig), "--no-leader-elect", "--policy", str(file))
    settings = {"PYTHONPATH": str(RULES), "EXTENDER_SETTLE_SECONDS": "2"}  # a write arrives at once, or never
    with Lives("schedule", tmp_path, *flags, settings=settings) as running:
        yield running


def a_node(number: int) -> list[Object]:
    name = f"node-{number:03}"
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110", MEMORY: str(DEVICES * GIB), COUNT: str(DEVICES)}
    devices = [make_device(f"{i}", {}, {"memory": f"{GIB}Gi"}, allowMultipleAllocations=True) for i in range(DEVICES)]
    return [make_node(name).capacity(resources).obj(), make_resource_slice(name, DRIVER, *devices)]


def pods_for_all_devices(random: Random, form: str) -> Iterator[list[Object]]:
    """Yields pods, with what each of them needs, until they ask for a tenth more than there is."""
    asked = 0
    while asked < 1.1 * NODES * DEVICES * GIB:
        size = random.randint(10, 50)
        yield a_pod(f"share-{asked:06}", size, form)
        asked += size


def a_pod(name: str, size: int, form: str) -> list[Object]:
    pod = make_pod(name).label(size=str(size)).req(cpu="100m")
    if form == "annotations":
        return [pod.req({MEMORY: str(size)}, cpu="100m").limit({MEMORY: str(size)}).obj()]
    share = {"requests": {"memory": f"{size}Gi"}}
    return [make_claim(name, make_request("device", "gpu", capacity=share)), pod.resource_claim(name).obj()]


@dataclass(frozen=True)
class Shares:
    """What the API server says of the shares.

    Attributes:
        waiting: the GiB that each pod without a node asks for.
        free: (node, device) -> the GiB that are left there.
        torn: shares without their pod, and pods without their share: what a kill between two writes leaves.
        doubled: devices that are given away beyond their memory, and shares whose id occurs twice.
    """

    waiting: Mapping[str, int]
    free: Mapping[tuple[str, str], int]
    torn: list[str]
    doubled: list[str]

    @classmethod
    def read(cls, plane: ControlPlane) -> Shares:
        free = {(f"node-{number:03}", str(i)): GIB for number in range(NODES) for i in range(DEVICES)}
        claims = {claim["metadata"]["name"]: claim for claim in plane.client.list("ResourceClaim", "default")}
        waiting, torn = {}, []
        for pod in plane.client.list("Pod", "default"):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
            size = int(pod["metadata"]["labels"]["size"])
            if not node:
                waiting[name] = size
            shares = _of_claim(claims[name]) if name in claims else _of_annotations(pod)
            if [(there, share) for there, _, share in shares] != ([(node, size)] if node else []):
                torn.append(f"{name} is on {node!r} and asks for {size}, its share is {shares}")
            for there, device, share in shares:
                free[there, device] -= share
        ids = Counter(result["shareID"] for claim in claims.values() for result in _results(claim))
        doubled = [f"{share} is given {uses} times" for share, uses in ids.items() if uses > 1]
        doubled += [f"{device} of {node} lacks {-left} GiB" for (node, device), left in free.items() if left < 0]
        return cls(waiting, free, torn, doubled)

    @property
    def fitting(self) -> list[str]:
        """The waiting pods for which some device has enough left."""
        most = max(self.free.values())
        return [name for name, size in self.waiting.items() if size <= most]


def _results(claim: Object) -> list[Object]:
    found: list[Object] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return found


def _of_claim(claim: Object) -> list[tuple[str, str, int]]:
    """Returns (node, device, GiB) of each share that the claim holds, if its pod has reserved it."""
    users = [user["name"] for user in claim.get("status", {}).get("reservedFor", [])]
    assert users in ([], [claim["metadata"]["name"]])
    sizes = [nano(result["consumedCapacity"]["memory"]) // nano("1Gi") for result in _results(claim)]
    return [(each["pool"], each["device"], size) for each, size in zip(_results(claim), sizes, strict=True)]


def _of_annotations(pod: Object) -> list[tuple[str, str, int]]:
    index = pod["metadata"].get("annotations", {}).get(INDEX)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    return [] if index is None else [(pod["spec"].get("nodeName", ""), index, int(limits[MEMORY]))]


@pytest.mark.parametrize("form", ["claims", "annotations"])
def test_no_share_is_given_away_twice_whenever_the_loop_dies(form: str, plane: ControlPlane, loop: Lives) -> None:
    plane.client.create(make_device_class("gpu", f'device.driver == "{DRIVER}"'))
    plane.client.create_many(obj for number in range(NODES) for obj in a_node(number))
    random = Random(SEED)
    pods = list(pods_for_all_devices(random, form))
    torn = []
    for turn in range(KILLS):
        plane.client.create_many(obj for pod in pods[turn::KILLS] for obj in pod)
        assert wait_until(lambda: loop.ready() and any(map(loop.running.metric, ATTEMPTS)), SETTLE_SECONDS), loop.said()
        time.sleep(random.uniform(0.0, 0.3))  # at any moment of its writes, and sometimes after them
        loop.kill()
        shares = Shares.read(plane)
        assert shares.doubled == []
        torn.append(len(shares.torn))
        loop.start()
    assert wait_until(lambda: _settled(plane), SETTLE_SECONDS), loop.said()
    shares = Shares.read(plane)
    assert (shares.doubled, shares.torn, shares.fitting) == ([], [], [])
    left, bound = sum(shares.free.values()), len(pods) - len(shares.waiting)
    print(f"\n{form}: {NODES} nodes, {bound} of {len(pods)} pods bound, {left} of {NODES * DEVICES * GIB} GiB left;")
    print(f"{KILLS} kills, {sum(map(bool, torn))} of them between the writes of {sum(torn)} pods")


def _settled(plane: ControlPlane) -> bool:
    time.sleep(1)  # one reading costs the API server as much as many binds
    shares = Shares.read(plane)
    return not shares.fitting and not shares.torn
