"""Implements bind: checks again that the pod fits, assumes it on its node, and posts the Binding.

The action depends on what the cache knows about the pod, and on whether the request names the pod's node:

    the pod in the cache             same node                  another node
    ----------------------------     ----------------------     ------------------------------
    has no node                      check, assume, bind        check, assume, bind
    is bound, or being bound         post the Binding again     refuse
    may be bound (no answer)         post the Binding again     post it again, then refuse

A pod that may be bound keeps its place on the node of this name, whether the node exists, was deleted or was created
again. Only the API server's answer, the watch, or the end of the pod's time to live frees the place.

Every path ends in `finish_binding` or `forget`. Between assume and bind, users' rules of Reserve, Permit and PreBind
run. After them, a member of a gang waits for the other members (see `group_quorum`). A pod waits in the thread of its
call, and that thread holds no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.errors import BindingFailed, Conflict, ExtenderError, IllegalTransition, NotFound, OutcomeUnknown, Refused
from extender.extender_v1.messages import ExtenderBindingArgs, ExtenderBindingResult, decode_binding_args, encode
from extender.framework.annotations import choose_annotations
from extender.framework.find_fit import find_fit
from extender.framework.permit import Permit, Permits
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Refusal, unresolvable
from extender.model.pod import Pod
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.runtime.clock import NO_DEADLINE, NO_LIMIT, Clock, Deadline, SystemClock, TimeLimit
from extender.runtime.ports import Annotations, Binder, Binding, Check, Telemetry, always
from extender.table import PodInfo, Table
from extender.verbs.group_planning import without_nominated_siblings
from extender.verbs.group_quorum import GroupQuorum
from extender.verbs.verb import Confirmation, Summary, repeated_without_late_rule

BOUND = ExtenderBindingResult()
UNFIT = "no longer fits: "
NODE_DELETED = unresolvable("", "the node was deleted")
_FOR_BIND_RULES = ", so Bind rules cannot choose what to bind it with"
_BEING_DELETED = "is being deleted"


class _Place(Enum):
    """Says if a pod has a node according to the cache, and if the cache is sure of it."""

    NONE = auto()
    CERTAIN = auto()
    """The pod is bound, or its bind is in progress."""
    UNKNOWN = auto()
    """A bind ended without an answer, and no watch event has shown its outcome."""


@dataclass(slots=True, eq=False)
class _BindInProgress:
    """A call that is binding a pod to `node`. `result` is None until another call for the same bind waits for it.

    `check` raises Refused if another process may have led since the call began, and filled the node.
    """

    node: str
    check: Check
    result: Future[ExtenderBindingResult] | None = None


class PermitWait:
    """Makes binds wait for the decision of their Permit rules. Limits how many binds wait, and for how long.

    The owner calls `end_deleted` several times a second.
    """

    def __init__(self, most_seconds: float, most_pods: int, clock: Clock | None = None) -> None:
        self.most_seconds = most_seconds
        self._clock = clock or SystemClock()
        self.free = threading.Semaphore(most_pods)
        self._lock = threading.Lock()
        self._waiting: dict[str, Permit] = {}

    def wait(self, permit: Permit) -> None:
        """Waits until the Permit rules allow the pod.

        Raises BindingFailed on a rejection, after a timeout, or if too many pods are waiting.
        """
        if not self.free.acquire(blocking=False):
            raise BindingFailed("too many pods are waiting at Permit")
        try:
            with self._lock:
                self._waiting[permit.pod.uid] = permit
            permit.wait(self.most_seconds)
        finally:
            with self._lock:
                self._waiting.pop(permit.pod.uid, None)
            self.free.release()

    def deadline(self, at_least: float) -> Deadline:
        """Returns the deadline of a bind's waits: after `most_seconds` or `at_least` seconds, whichever is longer."""
        return Deadline(self._clock, max(self.most_seconds, at_least))

    def uids(self) -> list[str]:
        """Returns the UIDs of the waiting pods."""
        with self._lock:
            return list(self._waiting)

    def cancel(self, uid: str, message: str) -> bool:
        """Ends the wait of the pod, and refuses its bind; returns False if the pod does not wait."""
        with self._lock:
            permit = self._waiting.get(uid)
        return permit is not None and permit.cancel(message)

    def preempt(self, uid: str, preemptor: str) -> bool:
        """Ends the wait of a pod that a preemptor evicts; returns False if the pod does not wait."""
        return self.cancel(uid, f"preempted by {preemptor}")

    def end_deleted(self, exists: Callable[[Pod], bool]) -> None:
        """Ends the wait of each pod that was deleted, so that its node is free again at once."""
        with self._lock:
            pods = [permit.pod for permit in self._waiting.values()]
        for pod in pods:
            if not exists(pod):
                self.cancel(pod.uid, f"pod {pod.key} no longer exists")


class Bind:
    """The bind verb. Upstream counterpart: HTTPExtender.Bind.

    A call can be repeated safely with the same UID and node. Concurrent calls for one pod share one Binding. If the
    caller repeats a call because the answer was lost, bind posts the Binding again, because only the API server knows
    whether the pod is bound.

    Args:
        permits: runs users' rules at Reserve and Permit. `permits.settle` must be called regularly.
        permit_wait: limits the waits at Permit; without it, a pod that would have to wait is refused.
        quorum: makes members of a gang wait for each other; without it, each member is bound alone.
        fence: returns a check that lets a Binding pass only in the present term of this process.
    """

    name = "bind"

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        binder: Binder,
        telemetry: Telemetry,
        limit: TimeLimit = NO_LIMIT,
        permits: Permits | None = None,
        permit_wait: PermitWait | None = None,
        confirmation: Confirmation | None = None,
        quorum: GroupQuorum | None = None,
        fence: Callable[[], Check] = lambda: always,
    ) -> None:
        self._cache = cache
        self._profiles = profiles
        self._binder = binder
        self._telemetry = telemetry
        self._limit = limit
        self._permits = permits or Permits(cache.snapshot)
        self._permit_wait = permit_wait or PermitWait(0.0, 1)
        self._confirmation = confirmation or Confirmation(cache)
        self._quorum = quorum or GroupQuorum(cache, telemetry, most_seconds=0.0, most_waiting=0)
        self._fence = fence
        self._at_bind: dict[str, tuple[Profile, Profile]] = {}  # name -> (the profile, its variant for bind)
        self._lock = threading.Lock()
        self._in_progress: dict[str, _BindInProgress] = {}

    def decode(self, body: bytes) -> ExtenderBindingArgs:
        return decode_binding_args(body)

    def decide(self, request: ExtenderBindingArgs) -> ExtenderBindingResult:
        return self._once(_binding(request), checked=True)

    def allow_all(self, request: ExtenderBindingArgs) -> ExtenderBindingResult:
        """Binds the pod without checking that it still fits, because a pod that is not bound here stays pending."""
        return self._once(_binding(request), checked=False)

    def failed(self, request: ExtenderBindingArgs, message: str) -> ExtenderBindingResult:
        return ExtenderBindingResult(message)

    def encode(self, request: ExtenderBindingArgs, result: ExtenderBindingResult) -> bytes:
        return encode(result)

    def summary(self, request: ExtenderBindingArgs, result: ExtenderBindingResult) -> Summary:
        return Summary(1, 0 if result.error else 1)

    def _once(self, binding: Binding, *, checked: bool) -> ExtenderBindingResult:
        """Binds the pod, or waits for another call that is binding it to the same node; returns the answer."""
        with self._lock:
            other = self._in_progress.get(binding.uid)
            if other is None:
                own = self._in_progress[binding.uid] = _BindInProgress(binding.node, self._fence())
            elif other.node == binding.node:
                other.result = shared = other.result or Future()
        if other is not None:
            if other.node == binding.node:
                return shared.result()
            return self._end("refused", f"is being bound to {other.node}")
        result = ExtenderBindingResult(f"the bind of {binding.key} was interrupted by an error")
        try:
            result = self._bind(binding, checked)
        except ExtenderError:
            raise
        except BaseException:  # an unexpected error: the Binding may have reached the API server
            self._leave_to_watch(binding.uid)
            raise
        finally:
            with self._lock:
                del self._in_progress[binding.uid]
            if own.result is not None:
                own.result.set_result(result)
        return result

    def _bind(self, binding: Binding, checked: bool) -> ExtenderBindingResult:
        """Acts as the table at the top of this file says, and returns the answer."""
        node, place = self._place(binding.uid)
        match place, node == binding.node:
            case _Place.NONE, _:
                return self._bind_first(binding, checked)
            case _Place.CERTAIN, True:
                return self._confirm(binding)
            case _Place.CERTAIN, False:
                return self._end("refused", f"is already bound to {node}")
            case _:
                return self._settle(binding, node, checked)

    def _place(self, uid: str) -> tuple[str, _Place]:
        placement = self._cache.placement(uid)
        if placement is None:
            return "", _Place.NONE
        return placement.node_name, _Place.CERTAIN if placement.certain else _Place.UNKNOWN

    # ---- cases in which the pod has no node

    def _bind_first(self, binding: Binding, checked: bool) -> ExtenderBindingResult:
        if checked:
            self._quorum.keep_room()  # filter may have answered before another leader split a gang
        deadline = self._limit.begin()
        info = self._cache.find_pod(binding.uid, binding.key)
        if info is None:
            if checked:
                return self._end("refused", f"no pod {binding.key} with UID {binding.uid} is known")
            if any(profile.bind for profile in self._profiles.all):
                return self._end("refused", f"no pod {binding.key} with UID {binding.uid} is known{_FOR_BIND_RULES}")
            return self._post_first(binding)
        profile = self._profile_of(info.pod)
        if not checked:
            return self._bind_unchecked(info, binding, profile)
        end_of_waits = self._end_of_waits(profile)
        with self._quorum.uncounted(info, binding.node):
            failure = self._make_ready(info, profile, binding.node, deadline)
            if failure is not None:
                self._quorum.failed(info)
                return failure
            try:
                self._quorum.wait(info, end_of_waits.left_seconds)
            except BindingFailed as error:
                self._forget(info.uid)
                return self._end("refused", str(error))
        described = self._assumed(info)
        result = self._post_first(self._with_annotations(binding))
        if not result.error:
            with suppress(BindingFailed):  # the node may have been deleted just now
                self._permits.run_bind_rules(profile.post_bind, described, binding.node)
        return result

    def _end_of_waits(self, profile: Profile) -> Deadline:
        """Returns one deadline for the two waits of a bind: for users' rules, and then for the other gang members.

        The deadline is common because kube-scheduler waits only httpTimeout for the whole bind, and then places the pod
        elsewhere. Without users' rules there is only the wait for the gang, which has its own limit.
        """
        if not (profile.permit or profile.pre_bind):
            return NO_DEADLINE
        return self._permit_wait.deadline(self._quorum.most_seconds)

    def _bind_unchecked(self, info: PodInfo, binding: Binding, profile: Profile) -> ExtenderBindingResult:
        if profile.bind:
            return self._end("refused", f"the cluster is not fully known yet{_FOR_BIND_RULES}")
        try:
            self._cache.assume(info, binding.node)
        except ExtenderError as error:
            return self._end("refused", str(error))
        return self._post_first(binding)

    def _make_ready(
        self, info: PodInfo, profile: Profile, node: str, deadline: Deadline
    ) -> ExtenderBindingResult | None:
        """Assumes the pod, and waits until users' rules allow the bind.

        Returns None if the pod may be bound. Otherwise forgets the pod's node, and returns the refusal.
        """
        try:
            refusal = self._assume(info, profile, node, deadline)
        except ExtenderError as error:
            return self._end("refused", str(error))
        if refusal is not None:
            return self._end("unfit", f"{node} {UNFIT}{_reason(refusal)}")
        try:
            self._permit(info, profile, node, deadline)
        except BindingFailed as error:
            self._forget(info.uid)
            return self._end("refused", str(error))
        return None

    def _assume(self, info: PodInfo, profile: Profile, node: str, deadline: Deadline) -> Refusal | None:
        """Assumes the pod on the node if it still fits there; returns the refusal if it does not.

        The pod is assumed with what Bind rules choose. If another pod was assumed in the meantime, they choose again.
        Raises BindingFailed if such a rule rejects the pod.
        """

        def check(table: Table) -> Refusal | Annotations:
            refusal = self._check(profile, info, node, table, deadline)
            if refusal is not None:
                return refusal
            with table.until(deadline):
                return choose_annotations(profile.bind, info, table.nodes.row_of[node], table)

        return repeated_without_late_rule(lambda: self._cache.assume(info, node, check))

    def _permit(self, info: PodInfo, profile: Profile, node: str, deadline: Deadline) -> None:
        """Waits until users' rules allow the bind. If one refuses, raises BindingFailed; the pod stays assumed."""
        try:
            described = self._assumed(info)
            permit = self._permits.run(profile.permit, described, node, deadline=deadline)
            if permit is not None and not permit.ready():
                self._permit_wait.wait(permit)
            self._permits.run_bind_rules(profile.pre_bind, described, node)
        except BindingFailed:
            raise
        except BaseException:
            self._forget(info.uid)
            raise

    def _assumed(self, info: PodInfo) -> Pod:
        """Returns the pod as it is assumed: with the annotations that Bind rules chose."""
        placement = self._cache.placement(info.uid)
        return placement.info.pod if placement is not None else info.pod

    def _with_annotations(self, binding: Binding) -> Binding:
        """Returns the Binding with the annotations with which the pod is assumed, or was bound by this process."""
        placement = self._cache.placement(binding.uid)
        return binding if placement is None else binding._replace(annotations=placement.annotations)

    def _post_first(self, binding: Binding) -> ExtenderBindingResult:
        try:
            return self._post(binding)
        except Refused as error:
            self._forget(binding.uid)
            return self._end("refused", str(error))

    # ---- cases in which the pod is bound

    def _confirm(self, binding: Binding) -> ExtenderBindingResult:
        """Posts the Binding of a bound pod again, because a restored API server may have lost it.

        If an earlier process bound the pod, what Bind rules chose is known only from the pod. A Binding without it
        would be wrong if the API server has lost the first one, so none is posted.
        """
        again = self._with_annotations(binding)
        info = self._cache.find_pod(binding.uid, binding.key)
        if not again.annotations and info is not None and self._profile_of(info.pod).bind:
            return self._end("already_bound")
        # This restarts the pod's time to live, unless the pod was deleted in the meantime.
        with suppress(IllegalTransition):
            self._cache.finish_binding(binding.uid)
        try:
            self._send(again)
        except OutcomeUnknown as error:
            return self._end("unknown", str(error))
        except Refused as error:  # the answer is an error, so that kube-scheduler tries the pod again
            return self._end("refused", str(error))
        return self._end("already_bound")

    # ---- cases in which the pod may already be bound

    def _settle(self, binding: Binding, node: str, checked: bool) -> ExtenderBindingResult:
        """Repeats an earlier bind to `node` that got no answer, because only the API server knows its outcome.

        The pod stays assumed on `node` in the meantime. Otherwise another pod could get its resources, and the node
        would be overcommitted if the first pod is bound there. While `node` does not exist, nothing is posted, because
        the API server would bind the pod to it all the same.
        """
        refusal = self._refusal_in_place(binding.uid, checked)
        if refusal is not None:
            return self._end("unfit", f"may be bound to {node}, where it {UNFIT}{_reason(refusal)}")
        result = self._bind_again(binding._replace(node=node))
        if result.error or node == binding.node:
            return result
        return self._end("refused", f"is already bound to {node}")

    def _refusal_in_place(self, uid: str, checked: bool) -> Refusal | None:
        """Returns why the pod no longer fits on the node where it is assumed; None if it fits."""
        with self._cache.snapshot(self.name) as table:
            slot = table.pods.slot_of.get(uid)
            if slot is None:
                return None
            info = table.pods.info(slot)
            row = table.pods.row[slot]
            if not table.nodes.present[row]:
                return NODE_DELETED
            if not checked:
                return None
            with table.hypothetically(removed=[uid]):
                return self._check(self._profile_of(info.pod), info, table.nodes.names[row], table, self._limit.begin())

    def _bind_again(self, binding: Binding) -> ExtenderBindingResult:
        try:
            self._cache.finish_binding(binding.uid, certain=False)
        except IllegalTransition:
            return self._end("refused", "its earlier bind has just expired; try again")
        try:
            return self._post(self._with_annotations(binding))
        except (Conflict, NotFound) as error:
            # The API server checks for a deletion first, so this error does not say whether the pod is bound.
            if _BEING_DELETED in str(error):
                return self._end("unknown", str(error))
            self._forget(binding.uid)
            return self._end("refused", str(error))
        except Refused as error:  # the refusal says nothing about the outcome of the earlier attempt
            return self._end("unknown", str(error))

    # ---- steps that all cases share

    def _post(self, binding: Binding) -> ExtenderBindingResult:
        """Posts the Binding, records that the bind has ended, and returns the answer.

        Raises Refused; the pod then stays assumed.
        """
        try:
            self._send(binding)
        except OutcomeUnknown as error:
            self._finish(binding.uid, certain=False)
            # An error would stay in the pod's status, even if the pod is bound. So the answer waits for the watch.
            if self._confirmation.wait(binding.uid, binding.node):
                return self._end("bound")
            return self._end("unknown", str(error))
        self._finish(binding.uid, certain=True)
        return self._end("bound")

    def _send(self, binding: Binding) -> None:
        # The call may have waited for users' rules or for other gang members, and it may still wait for a connection.
        self._binder.bind(binding, self._in_progress[binding.uid].check)

    def _finish(self, uid: str, *, certain: bool) -> None:
        if not certain:
            self._quorum.suspect(uid)
        with suppress(IllegalTransition):  # the watch may have shown in the meantime that the pod was deleted
            self._cache.finish_binding(uid, certain=certain)
        self._permits.finish(uid, certain=certain)

    def _leave_to_watch(self, uid: str) -> None:
        """Keeps an assumed pod on its node until the watch shows the outcome or the pod's time to live ends."""
        placement = self._cache.placement(uid)
        if placement is not None and placement.state is PodState.ASSUMED:
            self._finish(uid, certain=False)
        self._telemetry.bound("unknown")

    def _forget(self, uid: str) -> None:
        self._quorum.suspect(uid)
        try:
            self._permits.unreserve(uid)
        finally:
            with suppress(IllegalTransition):  # a pod that the watch has shown on a node keeps that node
                self._cache.forget(uid)

    def _check(self, profile: Profile, info: PodInfo, node: str, table: Table, deadline: Deadline) -> Refusal | None:
        """Returns why the pod cannot go to the node now; None if it can. Raises DeadlineExceeded.

        Other members of the pod's group that are nominated to the node do not count, because kube-scheduler already
        counted them when it chose the node.
        """
        row = table.nodes.row_of.get(node)
        if row is None or not table.nodes.present[row]:
            return NODE_DELETED
        with table.until(deadline), without_nominated_siblings(info, node, table, self._cache.groups.key_of):
            return refusal_on(row, profile, info, table)

    def _profile_of(self, pod: Pod) -> Profile:
        profile = self._profiles.of(pod)
        cached = self._at_bind.get(profile.name)
        if cached is None or cached[0] is not profile:
            cached = self._at_bind[profile.name] = (profile, at_bind(profile))
        return cached[1]

    def _end(self, result: str, error: str = "") -> ExtenderBindingResult:
        self._telemetry.bound(result)
        return ExtenderBindingResult(error) if error else BOUND


def refusal_on(row: int, profile: Profile, info: PodInfo, table: Table) -> Refusal | None:
    """Returns why the filters refuse the pod on this row; None if they accept it. Raises DeadlineExceeded."""
    return find_fit(profile, info, table, np.array([row], np.intp)).refusal(0)


def _reason(refusal: Refusal) -> str:
    return ", ".join(refusal.reasons) or refusal.plugin


def _binding(request: ExtenderBindingArgs) -> Binding:
    return Binding(request.pod_namespace, request.pod_name, request.pod_uid, request.node)


def at_bind(profile: Profile) -> Profile:
    """Returns the profile with the predicates that bind checks.

    At bind, kube-scheduler has already created the claim for the pod's extended resources. At any other time, such a
    claim would block the pod.
    """
    predicates = [
        replace(predicate, at_bind=True) if isinstance(predicate, DynamicResourcesFilter) else predicate
        for predicate in profile.predicates
    ]
    return replace(profile, predicates=predicates)
