"""Two replicas lead in turn, a few seconds each, while the stock scheduler fills a cluster and the network fails."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.builders import make_node, make_pod
from tests.end_to_end.service import Service
from tests.faults.agreement import check_agreement
from tests.faults.contender import Contender
from tests.faults.injection import FAULTS, Call, Fault, Injector, Severity
from tests.faults.proxy import FaultyProxy, kubeconfig_through, proxy_before
from tests.faults.sizes import LEADER_CHANGES, PODS, SEED, SETTLE_SECONDS, SOAKING
from tests.faults.test_storm import STORM, Nudge, check_truth, nodes, pods, report_faults, settled, unbound, unexplained
from tests.faults.witness import Witness
from tests.running import ONLY_EXTENDER, RunningExtender
from tests.stock.api_client import ApiClient
from tests.stock.control_plane import ControlPlane
from tests.stock.process import Process
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(7200 if SOAKING else 300), pytest.mark.slow]

SHORT_LEASE = ("--lease-duration-seconds=3",)
ELECTION = ("--leader-elect", "--lease-namespace=default", *SHORT_LEASE)
_LULL_SECONDS = (0.5, 3.0)
_TAKE_OVER_SECONDS = 240.0 if SOAKING else 60.0  # in a storm a list may be silent for 45 s
# Longer than the lease; some arrive before the other leads, and some after it has bound their pods.
LATE_SECONDS, LATE_PODS = (2.0, 8.0), 30


def stopped(leader: Contender, other: Contender) -> None:
    """It cannot know that it leads no more, until it goes on."""
    leader.signal(signal.SIGSTOP)
    assert wait_until(other.ready, _TAKE_OVER_SECONDS)
    leader.signal(signal.SIGCONT)


def killed(leader: Contender, other: Contender) -> None:
    leader.kill(worker_only=False)
    assert wait_until(lambda: other.ready() or leader.ready(), _TAKE_OVER_SECONDS)


def terminated(leader: Contender, other: Contender) -> None:
    leader.restart()
    assert wait_until(lambda: other.ready() or leader.ready(), _TAKE_OVER_SECONDS)


ENDS: tuple[Callable[[Contender, Contender], None], ...] = (stopped, killed, terminated)


@dataclass(frozen=True)
class Replicas:
    """Two replicas behind a Service, which a kube-scheduler calls, and a proxy before the API server."""

    both: tuple[Contender, Contender]
    proxy: FaultyProxy
    witness: Witness
    scheduler: Process

    def check(self, client: ApiClient) -> None:
        """Nothing is bound twice or over, and both caches say what the API server does."""
        check_truth(client, self.witness, self.scheduler)
        for each in self.both:
            check_agreement(client, each.running)


@contextmanager
def two_replicas(control_plane: ControlPlane, tmp_path: Path, severity: Severity) -> Iterator[Replicas]:
    with proxy_before(control_plane, Injector(SEED, severity)) as proxy, Witness(control_plane) as witness:
        flags = ("--kubeconfig", str(kubeconfig_through(proxy, control_plane, tmp_path)), *ELECTION)
        with (
            Contender(tmp_path, *flags) as one,
            Contender(tmp_path, *flags) as two,
            Service([(each.port, each.ready) for each in (one, two)]) as service,
            control_plane.scheduler(configuration(one.running, service.port)) as scheduler,
        ):
            yield Replicas((one, two), proxy, witness, scheduler)


def test_each_pod_is_bound_once_under_changing_leaders(control_plane: ControlPlane, tmp_path: Path) -> None:
    client, begin = control_plane.client, time.monotonic()
    client.create(*nodes())
    with two_replicas(control_plane, tmp_path, STORM) as replicas:
        one, two = replicas.both
        lead_in_turn(client, (one, two), Random(SEED))
        nudge = Nudge(client)
        wait_until(lambda: settled(client, nudge), SETTLE_SECONDS)
        transitions = client.get("Lease", "extender")["spec"]["leaseTransitions"]
        print(f"\ntwo leaders: {PODS - unbound(client)} of {PODS} pods bound", end=" ")
        print(f"in {time.monotonic() - begin:.0f} s, the lease changed hands {transitions} times")
        replicas.proxy.injector.calm()
        report_faults(replicas.proxy)
        assert wait_until(lambda: one.synced() and two.synced(), _TAKE_OVER_SECONDS)
        replicas.check(client)
        assert unexplained(tmp_path) == []
        assert transitions >= LEADER_CHANGES // 2  # in a storm there may be no leader as a turn begins


def test_a_binding_that_arrives_after_the_lease_binds_nothing_twice(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The leader dies with its Bindings under way; some arrive before the other has bound the pods, some after."""
    client = control_plane.client
    client.create(
        *(make_node(f"node-{i}").capacity({"cpu": "64", "memory": "64Gi", "pods": "110"}).obj() for i in "abc")
    )
    delayed = Severity({Call.BIND: 1.0}, hang_seconds=LATE_SECONDS, faults={**FAULTS, Call.BIND: (Fault.DELAYED,)})
    with two_replicas(control_plane, tmp_path, delayed) as replicas:
        one, two = replicas.both
        assert wait_until(lambda: one.ready() or two.ready(), _TAKE_OVER_SECONDS)
        client.create(*(make_pod(f"pod-{i}").req(cpu="1").obj() for i in range(LATE_PODS)))
        assert wait_until(lambda: replicas.proxy.injector.injected[Call.BIND, Fault.DELAYED] >= LATE_PODS)
        leader, other = sorted((one, two), key=lambda each: not each.ready())
        replicas.proxy.injector.calm()
        killed(leader, other)
        assert wait_until(lambda: unbound(client) == 0 and not replicas.proxy.late, SETTLE_SECONDS)
        statuses = {status for (name, status), _ in replicas.proxy.answered.items() if name.endswith("/binding")}
        assert statuses == {201, 409}
        assert wait_until(lambda: one.synced() and two.synced(), _TAKE_OVER_SECONDS)
        replicas.check(client)
        assert unexplained(tmp_path) == []


def configuration(any_extender: RunningExtender, port: int) -> dict[str, object]:
    made = RunningExtender(any_extender.process, port).configuration(plugins=ONLY_EXTENDER)
    made["extenders"][0]["httpTimeout"] = "3s"
    return {**made, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 3}


def lead_in_turn(client: ApiClient, contenders: tuple[Contender, Contender], random: Random) -> None:
    """Each leader comes to an end soon, while more and more pods come in."""
    made = pods()
    share = -(-len(made) // LEADER_CHANGES)
    for turn in range(LEADER_CHANGES):
        client.create(*made[turn * share : (turn + 1) * share])
        assert wait_until(lambda: any(each.ready() for each in contenders), _TAKE_OVER_SECONDS)
        time.sleep(random.uniform(*_LULL_SECONDS))
        leader, other = sorted(contenders, key=lambda each: not each.ready())
        ENDS[turn % len(ENDS)](leader, other)
