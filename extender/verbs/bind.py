"""bind: the pod is checked once more, counted on its node, and bound; each path ends in finish or forget.

Users' rules of Reserve and Permit run in between. A pod that one of them has wait does so in the thread of its call,
which kube-scheduler waits for, with no lock held.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

import numpy as np

from extender.cache.cache import Cache
from extender.errors import (
    BindingFailed,
    Conflict,
    ExtenderError,
    IllegalTransition,
    NotFound,
    OutcomeUnknown,
    Refused,
)
from extender.extender_v1.decoding import decode_binding_args
from extender.extender_v1.encoding import encode
from extender.extender_v1.types import ExtenderBindingArgs, ExtenderBindingResult
from extender.framework.find_fit import find_fit
from extender.framework.permit import Permit, Permits
from extender.framework.profile import Profile, Profiles
from extender.framework.status import Refusal, unresolvable
from extender.model.pod import Pod
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.runtime.clock import NO_LIMIT, Deadline, TimeLimit
from extender.runtime.ports import Binder, Binding, Telemetry
from extender.table import PodInfo, Table
from extender.verbs.verb import Summary
from extender.verbs.waiting import Confirmation

BOUND = ExtenderBindingResult()
GONE = "the node is gone"
UNFIT = "does not fit any more: "
_BEING_DELETED = "is being deleted"


class _BindInProgress:
    """A bind that is under way, and its result for those who wait for it, if any do."""

    __slots__ = ("awaited", "node")

    def __init__(self, node: str) -> None:
        self.node = node
        self.awaited: Future[ExtenderBindingResult] | None = None


class PermitWait:
    """Has binds wait at Permit: for so many seconds each at most, and so many at once; others are refused then."""

    def __init__(self, most_seconds: float, most_pods: int) -> None:
        self.most_seconds = most_seconds
        self._room = threading.Semaphore(most_pods)

    def wait(self, permit: Permit) -> None:
        """Waits until the pod is allowed. Raises BindingFailed."""
        if not self._room.acquire(blocking=False):
            raise BindingFailed("too many pods wait at Permit")
        try:
            permit.wait(self.most_seconds)
        finally:
            self._room.release()


class Bind:
    """Upstream counterpart: HTTPExtender.Bind.

    Idempotent by (UID, node): calls for one pod that come at the same time share one Binding, and a call that is
    repeated after its answer was lost finds the pod bound, by asking the API server once more.
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
    ) -> None:
        """`permits`: rules of Reserve and Permit; its owner calls `settle`. `permit_wait` None: no bind waits."""
        self._confirmation = confirmation or Confirmation(cache)
        self._permits, self._permit_wait = permits or Permits(cache.snapshot), permit_wait or PermitWait(0.0, 1)
        self._cache, self._binder, self._telemetry, self._limit = cache, binder, telemetry, limit
        self._profiles = profiles
        self._at_bind: dict[str, tuple[Profile, Profile]] = {}  # each with what `at_bind` makes of it
        self._lock = threading.Lock()
        self._in_progress: dict[str, _BindInProgress] = {}

    def decode(self, body: bytes) -> ExtenderBindingArgs:
        return decode_binding_args(body)

    def decide(self, request: ExtenderBindingArgs) -> ExtenderBindingResult:
        return self._once(_binding(request), checked=True)

    def allow_all(self, request: ExtenderBindingArgs) -> ExtenderBindingResult:
        """Binds without a check: the scheduler leaves binding to the extender, to do nothing would strand the pod."""
        return self._once(_binding(request), checked=False)

    def failed(self, request: ExtenderBindingArgs, message: str) -> ExtenderBindingResult:
        return ExtenderBindingResult(message)

    def encode(self, request: ExtenderBindingArgs, result: ExtenderBindingResult) -> bytes:
        return encode(result)

    def summary(self, request: ExtenderBindingArgs, result: ExtenderBindingResult) -> Summary:
        return Summary(1, 0 if result.error else 1)

    def _once(self, binding: Binding, *, checked: bool) -> ExtenderBindingResult:
        """Binds, or waits for the call that binds the same pod already."""
        uid, node = binding.uid, binding.node
        with self._lock:
            other = self._in_progress.get(uid)
            if other is None:
                mine = self._in_progress[uid] = _BindInProgress(node)
            elif other.node == node:
                awaited = other.awaited = other.awaited or Future()
        if other is not None:
            return awaited.result() if other.node == node else self._end("refused", f"is being bound to {other.node}")
        result = ExtenderBindingResult(f"the bind of {binding.key} broke off")
        try:
            result = self._bind(binding, checked)
        finally:
            with self._lock:
                del self._in_progress[uid]
            if mine.awaited is not None:
                mine.awaited.set_result(result)
        return result

    def _bind(self, binding: Binding, checked: bool) -> ExtenderBindingResult:
        placement = self._cache.placement(binding.uid)
        reason = "" if placement is None or placement.certain else self._reason_against(binding.uid, checked)
        if reason == GONE:
            self._forget(binding.uid)
            placement = None
        if placement is None:
            return self._bind_first(binding, checked)
        if not placement.certain:
            # Nobody knows what became of the last attempt, so the API server is asked by trying it again. The pod keeps
            # that place meanwhile: to let go of it is to fill the node over, if the attempt has succeeded.
            if reason:
                return self._end("unfit", f"{placement.node_name}, where it may be bound, {UNFIT}{reason}")
            result = self._bind_again(binding._replace(node=placement.node_name))
            if result.error or placement.node_name == binding.node:
                return result
        elif placement.node_name == binding.node:
            return self._confirm(binding)
        return self._end("refused", f"is bound to {placement.node_name} already")

    def _confirm(self, binding: Binding) -> ExtenderBindingResult:
        """Binds a pod anew that is bound there by all that is known: a restored API server may have lost that."""
        with suppress(IllegalTransition):  # it must not expire meanwhile
            self._cache.finish_binding(binding.uid)
        try:
            self._binder.bind(binding)
        except (OutcomeUnknown, Refused) as error:  # or kube-scheduler would try the pod no more
            return self._end("unknown" if isinstance(error, OutcomeUnknown) else "refused", str(error))
        return self._end("already_bound")

    def _bind_first(self, binding: Binding, checked: bool) -> ExtenderBindingResult:
        node, deadline = binding.node, self._limit.begin()
        info = self._cache.find_pod(binding.uid, binding.key)
        if info is None and checked:
            return self._end("refused", f"no pod of UID {binding.uid} is known under {binding.key}")
        profile = None if info is None else self._profile_of(info.pod)
        if info is not None:

            def check(table: Table) -> Refusal | None:
                return self._check(info, node, table, deadline, profile) if checked else None

            try:
                refusal = self._cache.assume(info, node, check)
            except ExtenderError as error:
                return self._end("refused", str(error))
            if refusal is not None:
                return self._end("unfit", f"{node} {UNFIT}{_reason(refusal)}")
        try:
            if info is not None and profile is not None and checked:
                self._permit(info, profile, node, deadline)
            return self._post(binding)
        except (BindingFailed, Refused) as error:
            self._forget(binding.uid)
            return self._end("refused", str(error))

    def _permit(self, info: PodInfo, profile: Profile, node: str, deadline: Deadline) -> None:
        """Returns once users' rules let the pod be bound. Raises BindingFailed, with the pod still assumed."""
        try:
            permit = self._permits.run(profile.permit, info.pod, node, deadline=deadline)
            if permit is not None and not permit.ready():
                self._permit_wait.wait(permit)
        except BindingFailed:
            raise
        except BaseException:
            self._forget(info.uid)
            raise

    def _bind_again(self, binding: Binding) -> ExtenderBindingResult:
        try:
            self._cache.finish_binding(binding.uid, certain=False)
        except IllegalTransition:
            return self._end("refused", "its last bind has just been given up: try again")
        try:
            return self._post(binding)
        except (Conflict, NotFound) as error:
            if _BEING_DELETED in str(error):  # which the API server says first, bound or not
                return self._end("unknown", str(error))
            self._forget(binding.uid)
            return self._end("refused", str(error))
        except Refused as error:  # says nothing of the attempt before
            return self._end("unknown", str(error))

    def _check(
        self, info: PodInfo, node: str, table: Table, deadline: Deadline, profile: Profile | None = None
    ) -> Refusal | None:
        """Returns why the pod cannot go to the node as the cluster is now. Raises DeadlineExceeded.

        `profile`: to go by; None: the pod's.
        """
        row = table.nodes.row_of.get(node)
        if row is None or not table.nodes.present[row]:
            return unresolvable("", GONE)
        with table.until(deadline):
            fit = find_fit(profile or self._profile_of(info.pod), info, table, np.array([row], np.intp))
        return fit.refusal(0)

    def _profile_of(self, pod: Pod) -> Profile:
        profile = self._profiles.of(pod)
        known = self._at_bind.get(profile.name)
        if known is None or known[0] is not profile:
            known = self._at_bind[profile.name] = profile, at_bind(profile)
        return known[1]

    def _reason_against(self, uid: str, checked: bool) -> str:
        """Returns the reason why the pod of an unknown outcome may not be bound again where it was to go, or ""."""
        with self._cache.snapshot(self.name) as table:
            slot = table.pods.slot_of.get(uid)
            if slot is None:
                return ""
            info, row = table.pods.info(slot), table.pods.row[slot]
            node = table.nodes.names[row]
            if not table.nodes.present[row]:
                return GONE  # the API server would bind to it all the same
            with table.hypothetically(removed=[uid]):
                refusal = self._check(info, node, table, self._limit.begin()) if checked else None
        return "" if refusal is None else _reason(refusal)

    def _post(self, binding: Binding) -> ExtenderBindingResult:
        """Raises Refused, with the pod still assumed."""
        uid, node = binding.uid, binding.node
        try:
            self._binder.bind(binding)
        except OutcomeUnknown as error:
            self._finish(uid, certain=False)
            # The scheduler would write the error into the pod's status, where it stays though the pod is bound.
            return self._end("bound") if self._confirmation.wait(uid, node) else self._end("unknown", str(error))
        except Refused:
            raise
        except BaseException:  # a defect: nobody knows how far the call came
            self._finish(uid, certain=False)
            self._telemetry.bound("unknown")
            raise
        self._finish(uid, certain=True)
        return self._end("bound")

    def _finish(self, uid: str, *, certain: bool) -> None:
        # The watch may have seen the pod go in the meantime; then there is nothing left to count.
        with suppress(IllegalTransition):
            self._cache.finish_binding(uid, certain=certain)
        self._permits.finish(uid, certain=certain)

    def _forget(self, uid: str) -> None:
        self._permits.unreserve(uid)
        # The watch may know better than the answer: a pod that it has seen on a node is not forgotten.
        with suppress(IllegalTransition):
            self._cache.forget(uid)

    def _end(self, result: str, error: str = "") -> ExtenderBindingResult:
        self._telemetry.bound(result)
        return ExtenderBindingResult(error) if error else BOUND


def _reason(refusal: Refusal) -> str:
    return ", ".join(refusal.reasons) or refusal.plugin


def _binding(request: ExtenderBindingArgs) -> Binding:
    return Binding(request.pod_namespace, request.pod_name, request.pod_uid, request.node)


def at_bind(profile: Profile) -> Profile:
    """Returns the profile as it judges a pod for which the scheduler has reserved what it needs (upstream PreBind)."""
    changed = [
        replace(predicate, at_bind=True) if isinstance(predicate, DynamicResourcesFilter) else predicate
        for predicate in profile.predicates
    ]
    return replace(profile, predicates=changed)
