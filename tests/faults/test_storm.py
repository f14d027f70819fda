"""The stock scheduler fills a cluster while everything between the extender and the API server goes wrong."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.builders import Object, make_node, make_pod
from tests.end_to_end.workload import violations
from tests.faults.agreement import check_agreement
from tests.faults.injection import FAULTS, Call, Fault, Injector, Severity
from tests.faults.mortal import MortalExtender
from tests.faults.proxy import FaultyProxy, kubeconfig_through, proxy_before
from tests.faults.sizes import KILLS, NODES, PODS, SEED, SETTLE_SECONDS, SOAKING
from tests.faults.witness import Witness
from tests.running import ONLY_EXTENDER, schedule
from tests.stock.api_client import ApiClient
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(7200 if SOAKING else 300), pytest.mark.slow]

STORM = Severity(
    chances={Call.BIND: 0.15, Call.WATCH: 0.6 if SOAKING else 0.4, Call.LIST: 0.15},
    hang_seconds=(2.0, 45.0) if SOAKING else (1.0, 4.0),
    watch_seconds=(0.5, 20.0) if SOAKING else (0.2, 3.0),
)
VARIANTS = [pytest.param(ONLY_EXTENDER, id="the extender alone decides")]
if SOAKING:
    VARIANTS.append(pytest.param(None, id="with the in-tree rules"))

_PLACES_PER_NODE = -(-PODS * 16 // (NODES * 15))  # room for a fifteenth more than there will be
_LULL_SECONDS = (1.0, 15.0) if SOAKING else (1.5, 3.0)


def configuration(extender: MortalExtender, plugins: dict[str, Any] | None) -> dict[str, Any]:
    quick = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 3}
    return {**extender.running.configuration(plugins=plugins), **quick}


def nodes() -> list[Object]:
    resources = {"cpu": str(_PLACES_PER_NODE), "memory": "64Gi", "pods": "110"}
    return [make_node(f"node-{i:03d}").zone(f"z{i % 3}").capacity(resources).obj() for i in range(NODES)]


def pods() -> list[Object]:
    """Of one size, so that the last finds room however the others lie; of several shapes else."""
    made = []
    for i in range(PODS):
        pod = make_pod(f"pod-{i:04d}").label(app=f"app-{i % 9}").req(cpu="1", memory=("64Mi", "1Gi")[i % 2])
        made.append(pod.host_port(9000 + i).obj() if i % 5 == 0 else pod.obj())
    return made


def unbound(client: ApiClient) -> int:
    return sum(not pod["spec"].get("nodeName") for pod in client.list("Pod", "default"))


class Nudge:
    """Pods that were refused are tried again when something happens in the cluster; this makes something happen."""

    def __init__(self, client: ApiClient) -> None:
        self._client, self._count = client, 0

    def __call__(self) -> None:
        self._count += 1
        self._client.patch("Node", "node-000", {"metadata": {"labels": {"nudge": str(self._count)}}})


def settled(client: ApiClient, nudge: Nudge) -> bool:
    nudge()
    time.sleep(1)
    return unbound(client) == 0


@pytest.mark.parametrize("plugins", VARIANTS)
def test_each_pod_is_bound_once_and_no_node_is_overfull_after_any_fault(
    control_plane: ControlPlane, tmp_path: Path, plugins: dict[str, Any] | None
) -> None:
    client, random, begin = control_plane.client, Random(SEED), time.monotonic()
    client.create(*nodes())
    with proxy_before(control_plane, Injector(SEED, STORM)) as proxy, Witness(control_plane) as witness:
        kubeconfig = kubeconfig_through(proxy, control_plane, tmp_path)
        with (
            MortalExtender(tmp_path, "--kubeconfig", str(kubeconfig)) as extender,
            control_plane.scheduler(configuration(extender, plugins)) as scheduler,
        ):
            client.create(*pods()[: PODS // 2])
            live_through(extender, client, random)
            nudge = Nudge(client)
            wait_until(lambda: settled(client, nudge), SETTLE_SECONDS)
            stormy_seconds = time.monotonic() - begin
            proxy.injector.calm()
            report(proxy, extender, client, stormy_seconds)
            check_truth(client, witness, scheduler)
            check_agreement(client, extender.running)
            assert unexplained(tmp_path) == []
    check_provoked(proxy, extender)


def test_the_loop_which_binds_from_fibers_keeps_the_same_rule(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bindings only go wrong here, and up to 64 at a time."""
    client = control_plane.client
    client.create_many(nodes())
    storm = Severity({Call.BIND: 0.4}, hang_seconds=(0.5, 12.0) if SOAKING else (0.5, 2.0))
    monkeypatch.setenv("EXTENDER_ASSUMED_TTL_SECONDS", "2")
    with proxy_before(control_plane, Injector(SEED, storm)) as proxy, Witness(control_plane) as witness:
        kubeconfig = kubeconfig_through(proxy, control_plane, tmp_path)
        with schedule(kubeconfig, tmp_path) as scheduler:
            client.create_many(pods())
            assert wait_until(lambda: unbound(client) == 0, SETTLE_SECONDS)
            report_faults(proxy)
            check_truth(client, witness, scheduler.process)
            assert scheduler.process.stop(30) == 0
            assert "Traceback" not in scheduler.process.log.read_text()
        conditions = [each for pod in client.list("Pod", "default") for each in pod["status"].get("conditions", [])]
        assert [each for each in conditions if (each["type"], each["status"]) == ("PodScheduled", "False")] == []
    assert {fault for call, fault in proxy.injector.injected if call is Call.BIND} == {*FAULTS[Call.BIND]}


def live_through(extender: MortalExtender, client: ApiClient, random: Random) -> None:
    """Deaths at random moments, while the rest of the pods comes in between them."""
    rest = pods()[PODS // 2 :]
    share = -(-len(rest) // KILLS)
    for turn in range(KILLS):
        client.create(*rest[turn * share : (turn + 1) * share])
        time.sleep(random.uniform(*_LULL_SECONDS))
        extender.kill(worker_only=turn % 3 == 2)


def check_truth(client: ApiClient, witness: Witness, scheduler: Process) -> None:
    """Returns the state of the API server."""
    listed = client.list("Pod", "default")
    assert [pod["metadata"]["name"] for pod in listed if not pod["spec"].get("nodeName")] == []
    assert violations(client.list("Node"), listed) == []
    assert wait_until(lambda: witness.failure or all(witness.places[pod["metadata"]["uid"]] for pod in listed))
    assert witness.failure is None
    assert witness.moved() == {}
    assert scheduler.running


def unexplained(directory: Path) -> list[str]:
    """Tracebacks, internal errors and healed differences in the logs of all incarnations."""
    logs = "".join(path.read_text() for path in sorted(directory.glob("extender-*.log")))
    faults = ("Traceback", "internal error", "cache corrected")
    return [line for line in logs.splitlines() if any(fault in line for fault in faults)]


def report(proxy: FaultyProxy, extender: MortalExtender, client: ApiClient, seconds: float) -> None:
    print(f"\nstorm: {PODS - unbound(client)} of {PODS} pods bound in {seconds:.0f} s, {extender.deaths} deaths")
    report_faults(proxy)


def report_faults(proxy: FaultyProxy) -> None:
    struck = proxy.injector.injected
    print("  faults:", {call.value: sum(count for (at, _), count in struck.items() if at is call) for call in Call})
    for (call, fault), count in sorted(struck.items(), key=lambda item: (item[0][0].value, item[0][1].value)):
        print(f"  {call.value:5} {fault.value:16} {count}")


def check_provoked(proxy: FaultyProxy, extender: MortalExtender) -> None:
    """A storm that did not blow proves nothing."""
    struck = proxy.injector.injected
    assert extender.deaths == KILLS
    done_without_answer = (Fault.UNANSWERED, Fault.LEFT_HANGING, Fault.DONE_YET_FAILED, Fault.TRUNCATED)
    assert sum(struck[Call.BIND, fault] for fault in done_without_answer) > 0
    assert all(sum(count for (at, _), count in struck.items() if at is call) > 0 for call in Call)
