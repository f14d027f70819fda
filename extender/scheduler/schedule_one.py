"""Takes one pod through the loop, from the queue to its node. Source: upstream schedule_one.go.

    schedule_one
      1. take the next pod from the queue
      2. scheduling cycle: choose a node (engine/decide.py), assume the pod there, reserve its volumes and devices,
         run users' rules of Reserve and Permit
      3. binding cycle: wait at Permit, write the reservations, wait until they are ready, bind
      4. if 2 or 3 fails: undo everything, preempt, put the pod back into the queue, and write the reason

The members of a pod group go through step 2 together; see group_scheduling.py. One thread runs steps 1 and 2. Many
binding cycles run at once in `Workers`. A waiting pod blocks no thread.

    nothing reserved, no Permit rules ----------------------------------------> bind --> finish
    wait at Permit --> pre-bind: write --> volumes and devices ready -----------^ |
              |                        |                                          '--> refused
              '------------------------'--> failed --> undo, unreserve, forget <---------'
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from extender.cache.cache import Cache
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen, Failure, rejected
from extender.errors import (
    BindingFailed,
    ClusterError,
    DeadlineExceeded,
    ExtenderError,
    ExtenderUnanswered,
    GaveWay,
    IllegalTransition,
    OutcomeUnknown,
    Outdated,
    Preempted,
)
from extender.framework.permit import BindRule, Permit, Permits
from extender.framework.plugin import error_prefix
from extender.framework.status import NO_REJECTION
from extender.model.devices import ResourceClaim
from extender.model.pod import Pod
from extender.queue.entries import Entity, GroupOutcome, QueuedGroup, QueuedPod
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import NO_LIMIT, Clock, Deadline, TimeLimit
from extender.runtime.ports import Annotations, Binder, Binding, Nominating
from extender.runtime.threads import going_on
from extender.scheduler.preemption import Nominations, PreemptionExecutor
from extender.scheduler.scheduler_ports import Attempt, AttemptResult, Events, SchedulerTelemetry, Statuses, Workers
from extender.scheduler.timing import (
    BIND,
    DEFAULT_BINDER,
    PERMIT,
    PRE_BIND,
    RESERVE,
    UNTIMED,
    PodTimer,
    PointStatus,
    SampledPodTimer,
    sample,
    status_of,
)
from extender.scheduler.waiting_pods import Awaited, OpenBinds, Reservation, Reserver, WaitingPods, undo
from extender.table import PodInfo

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class AssumedPod:
    """A pod between the scheduling cycle and its Binding.

    Attributes:
        began_at: the start of the attempt, in monotonic seconds.
        annotations: what users' Bind rules chose.
        reservations: the reservations for the pod on the node, in the order in which they were made.
        permit: the answers of users' Reserve and Permit rules; None if there are no such rules.
        pre_bind, post_bind: users' rules that run just before, and just after, the pod is bound.
        quorum: for a member of a gang, the wait for the other members; otherwise None.
    """

    pod: QueuedPod
    node_name: str
    began_at: float
    annotations: Annotations = ()
    reservations: Sequence[Reservation] = ()
    permit: Permit | None = None
    pre_bind: Sequence[BindRule] = ()
    post_bind: Sequence[BindRule] = ()
    timer: PodTimer = UNTIMED
    quorum: Awaited | None = None

    @property
    def described(self) -> Pod:
        """The pod as users' rules see it from Reserve to PostBind."""
        return self.pod.info.annotated(self.annotations).pod

    @property
    def needs_only_binding(self) -> bool:
        awaits = self.permit is not None or self.quorum is not None
        return not (awaits or self.reservations or self.pre_bind or self.post_bind)

    @property
    def calls_users_rules(self) -> bool:
        """True if users' rules run until the pod is bound, or if the bind fails; they may block the calling thread."""
        return bool(self.permit is not None or self.pre_bind or self.post_bind)

    @property
    def waits_at_permit(self) -> bool:
        return self.quorum is not None or bool(self.permit is not None and self.permit.pending)

    @property
    def awaited_at_permit(self) -> Sequence[Awaited]:
        return [awaited for awaited in (self.permit, self.quorum) if awaited is not None]


@dataclass(frozen=True, slots=True)
class Placing:
    """Assumes pods on their nodes in the cache, and reserves what they need there.

    Attributes:
        cycles: schedulerName -> scheduling cycle.
        reservers: reserve what pods need besides resources: volumes and devices.
        permits: users' Reserve and Permit rules, which run after the reservers.
    """

    cycles: Mapping[str, SchedulingCycle]
    cache: Cache
    queue: PriorityQueue
    reservers: Sequence[Reserver]
    permits: Permits
    telemetry: SchedulerTelemetry
    clock: Clock
    sample: Iterator[bool] = field(default_factory=sample)

    def with_nomination(self, info: PodInfo) -> PodInfo:
        """Returns the pod with its latest nomination. Its status may not have this nomination yet."""
        nominated_node = self.cache.nominated_node(info.uid)
        if nominated_node == info.pod.status.nominated_node_name:
            return info
        return PodInfo(info.pod.nominated_to(nominated_node))

    def assume_and_reserve(self, pod: QueuedPod, chosen: Chosen, began_at: float) -> AssumedPod | Failure:
        """Assumes the pod and reserves what it needs. If anything fails, undoes both."""
        try:
            self.cache.assume(pod.info, chosen.node_name, annotations=chosen.annotations)
        except ExtenderError as error:  # the node or the pod may have been deleted just now
            return Failure(f"assume: {error}")
        return self.reserve(pod, chosen, began_at)

    def reserve(self, pod: QueuedPod, chosen: Chosen, began_at: float) -> AssumedPod | Failure:
        """Reserves what an assumed pod needs. After a failure, undoes the reservations and forgets the pod.

        If undoing raises an error, the pod stays on its node until it expires; see `Scheduler.abandon`.
        """
        reservations: list[Reservation] = []
        plugin = ""  # the in-tree plugin that runs now
        profile = self.cycles[pod.info.pod.spec.scheduler_name].profile
        timer = SampledPodTimer(self.clock, self.telemetry, profile.name) if next(self.sample) else UNTIMED
        try:
            for reserver in self.reservers:
                if (reservation := reserver.reserve(pod.info, chosen)) is not None:
                    reservations.append(reservation)
                    plugin = reservation.plugin
                    with timer.plugin(RESERVE, plugin):
                        reservation.take()
                    plugin = ""
            described = pod.info.annotated(chosen.annotations).pod
            permit = self.permits.run(profile.permit, described, chosen.node_name, timer.plugin)
            timer.passed(RESERVE, PERMIT)
            if permit is not None:
                self._reject_if_outdated(permit)
        except Exception as error:  # whatever the error is, nothing may stay reserved or assumed
            if not isinstance(error, (Outdated, BindingFailed)):
                self.telemetry.set_aside("reserving", pod.info.pod.key, error)
            self.undo(pod, reservations)
            return failure_of(error, RESERVE, plugin)
        finally:
            timer.report()
        bind_rules = profile.pre_bind, profile.post_bind
        return AssumedPod(pod, chosen.node_name, began_at, chosen.annotations, reservations, permit, *bind_rules, timer)

    def undo(self, pod: QueuedPod, reservations: Sequence[Reservation]) -> None:
        """Undoes the reservations of an assumed pod, and removes the pod from its node."""
        self.queue.stop_recording_events(pod.uid)  # the pod's own released resources cannot help it
        self.permits.unreserve(pod.uid)
        undo(reservations)
        with suppress(IllegalTransition):  # the pod may have been deleted just now
            self.cache.forget(pod.uid)

    def _reject_if_outdated(self, permit: Permit) -> None:
        """Rejects the pod if it would wait for a rule that is no longer in the policy.

        A reload of the policy rejects only pods that are waiting already, but not a pod whose attempt is under way.
        """
        if waits_for := tuple(permit.pending):
            in_force = {rule.name for cycle in self.cycles.values() for rule in cycle.profile.permit}
            for rule in waits_for:
                if rule not in in_force:
                    permit.reject(rule, f"rule {rule} is no longer in the policy")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Takes pods and groups from the queue one by one, and places them.

    Only one thread at a time may call `schedule_one`, because each decision depends on the pods assumed before.

    Attributes:
        try_group: takes a pod group through its cycle.
        keep_room: keeps room for the waiting members of gangs that are partly bound.
    """

    queue: PriorityQueue
    pods: PodScheduler
    try_group: Callable[[QueuedGroup], object]
    keep_room: Callable[[], object]

    def schedule_one(self, timeout_seconds: float | None = None) -> bool:
        """Tries to schedule one pod or group; returns False if none was ready in time, or the queue was closed."""
        entity = self.queue.pop(timeout_seconds)
        if entity is None:
            return False
        set_aside = self.pods.placing.telemetry.set_aside
        with going_on(set_aside, "room of split gangs"):
            self.keep_room()
        self.pods.submitted.clear()
        with going_on(set_aside, "scheduling", entity.info.pod.key, lambda: self.abandon(entity)):
            if isinstance(entity, QueuedGroup):
                self.try_group(entity)
            else:
                self.pods.try_pod(entity)
        return True

    def abandon(self, entity: Entity) -> None:
        """Ends an attempt that an unexpected error has interrupted, so that later attempts are not affected.

        A pod that has no place waits for its backoff. A pod that was assumed keeps its place until it expires, because
        something may still be reserved for it there. Pods that are in their binding cycle are left alone.
        """
        for pod in tuple(entity.pods):
            with going_on(self.pods.placing.telemetry.set_aside, "scheduling", pod.info.pod.key):
                if pod.uid not in self.pods.submitted:
                    self._abandon_pod(pod)
        if isinstance(entity, QueuedGroup):
            with suppress(IllegalTransition):  # the group's attempt may have ended already
                self.queue.finish_group(entity, GroupOutcome.ERROR)

    def _abandon_pod(self, pod: QueuedPod) -> None:
        if self.pods.placing.cache.placement(pod.uid) is not None:
            self.pods.binding.keep_assumed(pod)
        else:
            with suppress(IllegalTransition):  # the pod may be back in the queue already
                self.queue.add_unschedulable(pod, NO_REJECTION)


@dataclass(frozen=True, slots=True)
class PodScheduler:
    """Assumes each pod on a node, and hands it to a binding cycle.

    Attributes:
        binders: run the binding cycles that only wait for the API server.
        pre_binders: threads for binding cycles with users' rules, and for the end of those that waited.
        limit: the time limit of a decision, from refreshing the table to the choice of a node or of victims.
        submitted: the UIDs of the pods whose binding cycle was started in the current attempt.
    """

    placing: Placing
    binding: BindingCycle
    binders: Workers
    pre_binders: Workers
    failures: FailureHandler
    events: Events
    limit: TimeLimit = NO_LIMIT
    submitted: set[str] = field(default_factory=set)

    def try_pod(self, pod: QueuedPod) -> None:
        """Takes a pod without a group through its scheduling cycle."""
        if self.skips(pod):
            self.placing.queue.done(pod.uid)
            return
        placing = self.placing
        began_at = placing.clock.monotonic()
        decision = self.decide(pod)
        seconds = placing.clock.monotonic() - began_at
        placing.telemetry.decided(seconds)
        self.spent(pod, seconds, gave_way=isinstance(decision, Failure) and decision.gave_way)
        outcome = placing.assume_and_reserve(pod, decision, began_at) if isinstance(decision, Chosen) else decision
        if isinstance(outcome, Failure):
            self.failures.handle(pod, outcome, began_at)
        else:
            self.submit(outcome)

    def submit(self, assumed: AssumedPod) -> None:
        """Starts the pod's binding cycle.

        If the pod may have to wait, it counts as a waiting pod from now on, even before a worker begins its cycle. A
        preemptor then cancels the bind instead of deleting the pod, and the time at Permit runs (upstream
        AddWaitingPod).
        """
        binding = self.binding
        self.submitted.add(assumed.pod.uid)
        if assumed.needs_only_binding:
            self.binders.submit(lambda: binding.go_on(binding.bind, assumed))
        elif assumed.waits_at_permit:
            binding.go_on(binding.wait_at_permit, assumed)
        else:
            binding.waiting.enter(assumed.pod.info)
            workers = self.pre_binders if assumed.calls_users_rules else self.binders
            workers.submit(lambda: binding.go_on(binding.pre_bind, assumed))

    def begin(self, entity: Entity) -> Deadline:
        """Returns the deadline of an attempt that starts now: it gives way to others after its slice of time."""
        queue = self.placing.queue
        return self.limit.begin(queue.slice_seconds(entity), lambda: queue.others_wait(entity))

    def spent(self, entity: Entity, seconds: float, *, gave_way: bool) -> None:
        """Records how long the attempt kept the deciding thread from others."""
        self.placing.queue.spent(entity, seconds, gave_way=gave_way)
        self.placing.telemetry.spent("gave way" if gave_way else "costly" if entity.cost_seconds else "cheap", seconds)

    def skips(self, pod: QueuedPod) -> bool:
        """Returns True if the pod is being deleted, or already has a node (upstream skipPodSchedule)."""
        described = pod.info.pod
        if described.terminating:
            note = f"skip schedule deleting pod: {described.key}"
            self.events.record(described, "Warning", "FailedScheduling", "Scheduling", note)
            return True
        return self.placing.cache.placement(pod.uid) is not None

    def decide(self, pod: QueuedPod) -> Chosen | Failure:
        """Returns the decision about the pod alone. An unexpected error becomes a Failure."""
        placing = self.placing
        try:
            # The profile is looked up once, because a reload of the policy may replace it.
            cycle = placing.cycles[pod.info.pod.spec.scheduler_name]
            info = placing.with_nomination(pod.info)
            with placing.cache.snapshot("schedule", self.begin(pod)) as table:
                outcome = cycle.schedule_pod(info, table)
            if isinstance(outcome, Failure) and outcome.rejection.rules and cycle.profile.preemption is None:
                _log.debug(
                    "preemption not tried pod=%s reason=%r", info.pod.key, "the profile has no DefaultPreemption"
                )
            return outcome
        except DeadlineExceeded as error:
            return Failure(str(error), gave_way=isinstance(error, GaveWay))
        except Exception as error:  # one pod's error must not stop the loop, and nothing has changed yet
            placing.telemetry.set_aside("scheduling", pod.info.pod.key, error)
            return Failure(f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class BindingCycle:
    """Binds assumed pods. Every path ends in `finish_binding` or `forget`. Source: upstream bindingCycle.

    Attributes:
        handle_failure: called with each pod that could not be bound, after everything was undone.
        waiting: the pods in their binding cycle, which may wait and can be cancelled.
        permits: users' Reserve and Permit rules.
        open_binds: the binds that got no answer.
    """

    cache: Cache
    queue: PriorityQueue
    binder: Binder
    events: Events
    statuses: Statuses
    telemetry: SchedulerTelemetry
    clock: Clock
    handle_failure: Callable[[QueuedPod, Failure, float], object]
    waiting: WaitingPods
    permits: Permits
    open_binds: OpenBinds

    def go_on(self, step: Callable[[AssumedPod], object], assumed: AssumedPod) -> None:
        """Runs a step of the pod's binding cycle. After an unexpected error, the watch shows if the pod was bound."""
        pod = assumed.pod
        with going_on(self.telemetry.set_aside, "binding", pod.info.pod.key, lambda: self.keep_assumed(pod)):
            step(assumed)

    def keep_assumed(self, pod: QueuedPod) -> None:
        """Keeps the pod assumed until the watch shows it on its node, or until it expires and is tried again."""
        with suppress(BindingFailed):  # the pod may have been cancelled
            self.waiting.leave(pod.info)
        self._finish(pod, certain=False)

    def wait_at_permit(self, assumed: AssumedPod) -> None:
        """Lets the pod wait at Permit from now on. When the wait ends, a worker continues the binding cycle."""
        # Events are still recorded. If a Permit rule rejects the pod, one of them may help it.
        info, began_at = assumed.pod.info, self.clock.monotonic()
        self.statuses.nominate(info.pod, assumed.node_name)

        def on_end(error: Exception | None) -> None:
            status = PointStatus.ERROR if isinstance(error, Preempted) else status_of(error)
            self.telemetry.waited_at_permit(status, self.clock.monotonic() - began_at)
            if error is None:
                self.go_on(self.pre_bind, assumed)
            else:
                self.go_on(lambda assumed: self._fail(assumed, error), assumed)

        self.waiting.wait_at_permit(info, assumed.awaited_at_permit, on_end)

    def pre_bind(self, assumed: AssumedPod) -> None:
        """Writes the pod's reservations, and binds the pod when its volumes and devices are ready."""
        # From here on, only a PreBind rule can reject the pod, and it reads the cluster as of its own call.
        self.queue.stop_recording_events(assumed.pod.uid)
        for reservation in assumed.reservations:
            try:
                with assumed.timer.plugin(PRE_BIND, reservation.plugin):
                    reservation.write()
            except Exception as error:  # whatever the error is, nothing may stay reserved
                self._fail(assumed, error, PRE_BIND, reservation.plugin)
                return
        self._wait_for_reservations(assumed)

    def _run_pre_bind_rules(self, assumed: AssumedPod) -> None:
        """Runs users' PreBind rules once the volumes and devices are ready, and binds the pod."""
        pod, timed = assumed.pod.info, partial(assumed.timer.plugin, PRE_BIND)
        if assumed.pre_bind:
            self.queue.record_events_again(pod.uid)
        try:
            self.permits.run_bind_rules(assumed.pre_bind, assumed.described, assumed.node_name, timed)
            self.waiting.leave(pod)
        except Exception as error:  # whatever the error is, nothing may stay reserved
            self._fail(assumed, error, PRE_BIND)
        else:
            self.queue.stop_recording_events(pod.uid)
            self.bind(assumed)

    def _wait_for_reservations(self, assumed: AssumedPod) -> None:
        """Continues once the pod's volumes and devices are ready."""
        info = assumed.pod.info

        def on_begin() -> None:  # shows the cluster autoscaler and others where the pod will go (KEP-5278)
            self.statuses.nominate(info.pod, assumed.node_name)

        def on_end(error: Exception | None) -> None:
            if error is None:
                self.go_on(self._run_pre_bind_rules, assumed)
            else:
                self.go_on(lambda assumed: self._fail(assumed, error), assumed)

        try:
            is_ready = self.waiting.wait(info, assumed.reservations, on_begin, on_end)
        except Exception as error:
            self._fail(assumed, error)
            return
        if is_ready:
            self._run_pre_bind_rules(assumed)

    def bind(self, assumed: AssumedPod) -> None:
        """Binds a pod that has nothing to wait for."""
        pod, node_name = assumed.pod.info.pod, assumed.node_name
        assumed.timer.passed(PRE_BIND)
        self.open_binds.drop(pod.uid)
        try:
            # A queued "unschedulable" status must not be written after the bind.
            self.statuses.withdraw(pod)
            self._post(assumed, Binding(pod.namespace, pod.name, pod.uid, node_name, assumed.annotations))
        except OutcomeUnknown as error:
            _log.warning("bind got no answer pod=%s node=%s reason=%r", pod.key, node_name, str(error))
            self._leave_to_watch(assumed, error)
        except ExtenderError as error:
            self._fail(assumed, error, BIND, DEFAULT_BINDER)
        except Exception as error:  # an unexpected error: the Binding may have reached the API server
            self.telemetry.set_aside("binding", pod.key, error)
            self._leave_to_watch(assumed, error)
        else:
            self._finish(assumed.pod, certain=True)
            self._count(assumed, "bound", AttemptResult.SCHEDULED)
            self._report_bound(assumed)

    def _report_bound(self, assumed: AssumedPod) -> None:
        pod, node_name = assumed.pod.info.pod, assumed.node_name
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
        self.events.record(pod, "Normal", "Scheduled", "Binding", note)
        with suppress(BindingFailed):  # the node may have been deleted just now
            self.permits.run_bind_rules(assumed.post_bind, assumed.described, node_name)

    def _post(self, assumed: AssumedPod, binding: Binding) -> None:
        """Posts the Binding. Measures for every pod, not only for a sample, how long the API server takes."""
        began_at, status = self.clock.monotonic(), PointStatus.ERROR
        try:
            with assumed.timer.plugin(BIND, DEFAULT_BINDER):
                self.binder.bind(binding)
            status = PointStatus.SUCCESS
        finally:
            profile = assumed.pod.info.pod.spec.scheduler_name
            self.telemetry.extension_point(BIND, status, profile, self.clock.monotonic() - began_at)

    def _leave_to_watch(self, assumed: AssumedPod, error: Exception) -> None:
        """Keeps the pod assumed, because it may be bound. The pod expires if the watch does not show the bind."""
        self._finish(assumed.pod, certain=False)
        self._count(assumed, "unknown", AttemptResult.ERROR, str(error))
        prefix = "" if isinstance(error, ExtenderUnanswered) else error_prefix(BIND, DEFAULT_BINDER)
        on_bound = partial(self._report_bound, assumed)
        self.open_binds.add(assumed.pod.info.pod, assumed.node_name, f"{prefix}{error}", on_bound)

    def _finish(self, pod: QueuedPod, *, certain: bool) -> None:
        with suppress(IllegalTransition):  # the pod may have been deleted in the meantime
            self.cache.finish_binding(pod.uid, certain=certain)
        self.permits.finish(pod.uid, certain=certain)
        self.queue.done(pod.uid)

    def _fail(self, assumed: AssumedPod, error: Exception, point: str = "", plugin: str = "") -> None:
        """Undoes everything that was done for the pod, in reverse order, and puts it back into the queue.

        See `failure_of`.
        """
        pod = assumed.pod
        if not isinstance(error, (ClusterError, BindingFailed)):
            self.telemetry.set_aside("binding", pod.info.pod.key, error)
        self.queue.stop_recording_events(pod.uid)  # the pod's own released resources cannot help it
        with suppress(BindingFailed):  # the pod fails with `error` even if its wait was cancelled
            self.waiting.leave(pod.info)
        self.permits.unreserve(pod.uid)
        undo(assumed.reservations)
        with suppress(IllegalTransition):  # the watch may have shown the pod on a node, or its deletion
            self.cache.forget(pod.uid)
        self.handle_failure(pod, failure_of(error, point, plugin), assumed.began_at)
        self.telemetry.bound("refused")
        assumed.timer.report()

    def _count(self, assumed: AssumedPod, bind_result: str, result: AttemptResult, message: str = "") -> None:
        pod = assumed.pod
        now = self.clock.monotonic()
        self.telemetry.bound(bind_result)
        assumed.timer.report()
        seconds = now - assumed.began_at
        self.telemetry.attempted(Attempt(pod.info.pod, result, seconds, pod.attempts, message, assumed.node_name))
        if result is AttemptResult.SCHEDULED and pod.first_attempt_at is not None:
            self.telemetry.scheduled(pod.attempts, now - pod.first_attempt_at)
            if pod.flushed_at is not None:
                self.telemetry.scheduled_after_flush()


@dataclass(frozen=True, slots=True)
class FailureHandler:
    """Handles a failed scheduling or binding cycle. Source: upstream handleSchedulingFailure.

    Attributes:
        deallocate: releases the devices of a claim that no pod uses; `workers` call it.
    """

    queue: PriorityQueue
    nominations: Nominations
    preemption: PreemptionExecutor
    statuses: Statuses
    events: Events
    telemetry: SchedulerTelemetry
    clock: Clock
    workers: Workers
    deallocate: Callable[[ResourceClaim], object]

    def handle(self, pod: QueuedPod, failure: Failure, began_at: float) -> None:
        """Puts the pod back into the queue, starts its preemption, and writes its event and its condition.

        If the pod was deleted or bound by another scheduler in the meantime, only counts the attempt.
        """
        seconds = self.clock.monotonic() - began_at
        if failure.search_seconds is not None:
            status = "Success" if failure.preemption else "Unschedulable"
            self.telemetry.preemption_tried(status, failure.search_seconds)
        if failure.preemption is not None and self.preemption.has_to_wait(pod.info):
            failure = replace(failure, preemption=None, nominated_node=Nominating.KEEP)
        if failure.preemption is not None:
            self.preemption.begin(pod.info, failure.preemption)
        if self.queue.add_unschedulable(pod, failure.rejection) is not None:
            self._report(pod, failure)
            self._make_room(pod, failure)
        elif failure.preemption is not None:
            self.preemption.cancel(pod.info)
        result = AttemptResult.UNSCHEDULABLE if failure.rejection.rules else AttemptResult.ERROR
        self.telemetry.attempted(Attempt(pod.info.pod, result, seconds, pod.attempts, failure.message))

    def _report(self, pod: QueuedPod, failure: Failure) -> None:
        described = pod.info.pod
        if failure.nominated_node is not Nominating.KEEP:
            self.nominations.nominate(pod.info, failure.node_to_nominate)
        note = failure.message
        if pod.cost_seconds:
            note = f"{note} (its last attempt took {pod.cost_seconds:.1f} s, so others go first)"
        self.events.record(described, "Warning", "FailedScheduling", "Scheduling", note)
        self.statuses.failed(described, failure.reason, failure.message, failure.nominated_node)

    def _make_room(self, pod: QueuedPod, failure: Failure) -> None:
        if failure.preemption is not None:
            self.preemption.carry_out(pod.info, failure.preemption)
        if (claim := failure.idle_claim) is not None:
            self.give_back(claim)

    def give_back(self, claim: ResourceClaim) -> None:
        """Releases the devices of a claim that no pod uses, in a worker."""
        self.workers.submit(lambda: self.deallocate(claim))


def failure_of(error: Exception, point: str = "", plugin: str = "") -> Failure:
    """Returns the Failure for an error. If a BindingFailed names a plugin, that plugin counts as rejecting the pod.

    Args:
        point: the extension point where the error was raised; "" for the wait at Permit.
        plugin: the in-tree plugin that raised it; "" if none did.
    """
    if isinstance(error, BindingFailed):  # its message names the plugin already
        failure = rejected(error)
        return replace(failure, message=str(error)) if point == PRE_BIND else failure
    return Failure(f"{error_prefix(point, plugin)}{error}" if plugin else str(error))
