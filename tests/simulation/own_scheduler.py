"""A scheduler of the project's own in a process of its own: everything that `extender schedule` runs, but its pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from extender.app import schedule, upkeep
from extender.engine.decision import EvictionPlan
from extender.errors import ClusterError
from extender.preemption.evaluator import pod_terminating_by_preemption
from extender.queue.priority_queue import PriorityQueue
from extender.scheduler.preemption import PreemptionExecutor
from extender.table import PodInfo
from extender.web.app import PrivatePages
from tests.simulation.judge import Judge
from tests.simulation.replica import CHECK_SECONDS, COMPARE_SECONDS, DEVICES, FOLLOWED, STORAGE, settings
from tests.simulation.tasks import Process, Simulation
from tests.simulation.witness import WitnessedCache


class OwnScheduler:
    """One process of `extender schedule`.

    Args:
        ended: set when the process has ended by itself, or was asked to.

    Attributes:
        ready: it schedules.
    """

    def __init__(
        self,
        simulation: Simulation,
        judge: Judge,
        process: Process,
        *,
        elects: bool,
        ended: Callable[[OwnScheduler], object],
    ) -> None:
        self.process, self._simulation, self._judge, self._ended = process, simulation, judge, ended
        self._missing: set[str] = set()
        self._checked_at = 0.0
        self.ready = False
        process.facts["elects"] = elects
        self._settings = settings(elects=elects, kinds=(*FOLLOWED, *STORAGE, *DEVICES))
        self._compare_seconds = simulation.random.choice(COMPARE_SECONDS)
        self._seed = simulation.random.randrange(1 << 30)
        simulation.spawn(process, f"{process.name} main", self._main)
        simulation.spawn(process, f"{process.name} check", self._check_now_and_then)

    @property
    def cache(self) -> WitnessedCache:
        cache: WitnessedCache = self.process.facts["cache"]
        return cache

    def stop(self) -> None:
        """SIGTERM."""
        self._stopping.set()

    def _main(self) -> None:
        self._stopping = vars(schedule)["threading"].Event()  # the simulated one
        upkeep.COMPARE_SECONDS = self._compare_seconds  # it is read while the process is made
        try:
            self._whole = schedule.SchedulerProcess(self._settings, self._stopping, self._seed, self.process.name)
            self._whole.run()
        except ClusterError as error:
            self._simulation.tell(f"{self.process.name}: {error}")
        self._simulation.after(0.0, lambda: self._ended(self))

    def _check_now_and_then(self) -> None:
        while True:
            self._simulation.sleep(CHECK_SECONDS)
            pages, queue = self.process.facts.get("pages"), self.process.facts.get("queue")
            if pages is not None:
                leading = json.loads(pages["/debug/pods"]("", "").body)["leading"]
                self.ready = leading and pages["/readyz"]("", "").status == 200
            if queue is not None:
                self._simulation.undisturbed(lambda queue=queue: self._check(queue))  # type: ignore[misc]  # bound here

    def _check(self, queue: PriorityQueue) -> None:
        if self.ready:
            self.cache.check_knowledge()
        in_flight = {info.uid for info in queue.pods_in_flight()}
        self.cache.check(lambda uid: uid in in_flight)
        queued = {info.uid for tier in queue.pods().values() for info in tier}
        waiting = {
            uid
            for uid, held in self.cache.pods().items()
            if held.pod and not held.node_name and not held.pod.terminating
        }
        # The cache knows of a pod a moment before the queue does, and in that moment the process may stand still.
        stood_still = self.process.paused_until > self._checked_at
        missing, self._checked_at = waiting - queued - in_flight, self._simulation.now
        lost, self._missing = set() if stood_still else self._missing & missing, missing
        self._judge.require(not lost, f"{self.process.name}: neither queued nor in flight: {sorted(lost)}")
        both = queued & in_flight
        self._judge.require(not both, f"{self.process.name}: queued and in flight: {sorted(both)}")


class WitnessedQueue(PriorityQueue):
    """Is found by those who check."""

    simulation: Simulation

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.simulation.current is not None
        self.simulation.current.process.facts["queue"] = self


class WitnessedPreemptions(PreemptionExecutor):
    """Tells the judge whom a pod makes go, and when it does so again."""

    simulation: Simulation
    judge: Judge

    def begin(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        self._facts()["nominated"] = self._facts()["cache"].nominated_node(preemptor.uid)
        super().begin(preemptor, plan)

    def carry_out(self, preemptor: PodInfo, plan: EvictionPlan) -> None:
        facts, victims = self._facts(), {one.uid for one in plan.victims}
        node, before = facts.get(preemptor.uid, ("", set()))
        if node and node == facts["nominated"]:  # no more important pod has taken the place away from it
            pods = facts["cache"].pods()
            # A victim that left before it was bound holds no place: to wait for it would help no pod.
            known = [pods[uid].pod for uid in before if uid in pods and pods[uid].node_name == node]
            leaving = [pod.uid for pod in known if pod is not None and pod_terminating_by_preemption(pod)]
            others = [one.uid for one in plan.victims if not one.pod.terminating and one.uid not in before]
            again = f"{preemptor.pod.key} makes {others} leave {plan.node_name}, though {leaving} leave {node} for it"
            # A nomination holds no devices or volumes, as upstream: another may have got those of the node.
            claims = bool(preemptor.pod.spec.resource_claims or preemptor.pod.spec.volumes)
            self.judge.require(self.judge.disturbed or claims or not (leaving and others), again)
        self.simulation.tell(f"{preemptor.pod.name} makes {sorted(victims)} leave {plan.node_name}")
        facts[preemptor.uid] = plan.node_name, before | victims
        super().carry_out(preemptor, plan)

    def _facts(self) -> dict[str, Any]:
        assert self.simulation.current is not None
        return self.simulation.current.process.facts


class Pages:
    """In place of the server of health and metrics, for those that read them."""

    simulation: Simulation

    def __init__(self, _host: str, _port: int, pages: PrivatePages, *_: object, **__: object) -> None:
        assert self.simulation.current is not None
        self.simulation.current.process.facts["pages"] = pages.pages

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass
