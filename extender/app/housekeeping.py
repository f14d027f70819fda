"""Runs periodic tasks for a process's cache. Tunes garbage collection, memory and the switching of threads.

`CacheEvidence` finds out from the cache if writes whose outcome is unknown have taken effect; see `runtime.unsettled`.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import sys
from collections.abc import Iterable
from contextlib import suppress

from extender.cache.cache import Cache
from extender.cache.changes import Changes
from extender.cache.debugger import TABLE, Comparer
from extender.cache.expiry import Expiry
from extender.cache.pod_states import PodState, is_bound
from extender.cluster.statuses import ApiStatuses
from extender.config.settings import Settings
from extender.errors import ClusterError, IllegalTransition
from extender.framework.permit import Permits
from extender.model.devices import ResourceClaim
from extender.model.meta import Object
from extender.plugins.users.rule_calls import end_abandoned
from extender.runtime import process
from extender.runtime.clock import Clock
from extender.runtime.ports import Binding, Lister, Telemetry
from extender.scheduler.preemption import RulePreemption
from extender.table.features import FeatureGates
from extender.verbs.filter import Activator, RefusedPods


class CacheEvidence:
    """Finds out from the cache if a write has taken effect. It implements unsettled.Evidence."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def nothing_waits(self) -> bool:
        """Returns True if all pods have nodes and all claims have devices, so a late write could change nothing.

        Only what the watch shows counts. A pod that is assumed here may wait, and another process may be binding it.
        """
        claims = self._cache.objects(ResourceClaim.__name__).values()
        if any(isinstance(claim, ResourceClaim) and claim.allocation is None for claim in claims):
            return False
        return all(pod.state is PodState.ADDED for pod in self._cache.pods().values())

    def shows(self, binding: Binding) -> bool:
        """Returns True if the watch has shown that the pod is on a node, or that it was deleted."""
        placement = self._cache.placement(binding.uid)
        if placement is None:
            return self._cache.find_pod(binding.uid, binding.key) is None
        return placement.state is PodState.ADDED


def assume_unsettled(cache: Cache, bindings: Iterable[Binding]) -> None:
    """Assumes these pods in the cache, because an earlier worker may have bound them.

    They stay assumed until the watch shows them on their nodes, or they expire, whether their nodes exist or not.
    """
    for binding in bindings:
        info = cache.find_pod(binding.uid, binding.key)
        if info is not None and cache.placement(binding.uid) is None:
            with suppress(IllegalTransition):  # the watch may have shown the pod on a node just now
                cache.keep_place(info, binding.node, binding.annotations)
                _log.warning(
                    "pod assumed, an earlier worker may have bound it pod=%s node=%s", binding.key, binding.node
                )


HOUSEKEEPING_SECONDS = 1.0
WAITING_SECONDS = 0.2  # the time between two checks of pods that wait between their decision and their bind
UNANSWERED_SECONDS = 30.0  # the time to live after a bind without an answer, if assumedTtlSeconds is 0
REVIVAL_SECONDS = 60.0  # the time between two restarts of ended threads; a probe of /livez restarts them sooner
REPAIR_SECONDS = 30.0
VERSION_SECONDS = 60.0  # the time between two questions for the version of the API server
STATUSES_SECONDS = 30.0
FROZEN_SECONDS = 20.0  # less than gunicorn waits for a worker, so that the line is known when the worker is ended
# One copy of the cache is for filter, one is for bind, and one is for the comparer.
TABLES = 3
# A thread gives up the GIL after this time. With Python's 5 ms, binders and calls would wait too long for it.
SWITCH_SECONDS = 0.001

_log = logging.getLogger(__name__)


def limit_process() -> None:
    """Limits garbage collection, the free memory that the C library keeps, and how long a thread waits for the GIL."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*process.GC_THRESHOLDS)
    process.PAUSES.start()
    process.limit()


def prepare(cache: Cache, tables: int = 1) -> None:
    """Builds the tables that decisions read, and tunes memory allocation for the number of cached nodes."""
    process.limit(cache.size().nodes)
    cache.refresh(tables)
    gc.freeze()  # most of the listed objects live long, so they are exempted from garbage collection
    process.use_huge_pages()


def create_cache(
    settings: Settings, clock: Clock, telemetry: Telemetry, features: FeatureGates, changes: Changes | None
) -> Cache:
    """Returns an empty cache. A pod stays assumed at least as long as its bind may be in flight."""
    seconds, settle_seconds = settings.assumed_ttl_seconds, settings.settle_seconds
    unanswered_seconds = max(seconds or UNANSWERED_SECONDS, settle_seconds)
    cache = Cache(clock, telemetry, unanswered_seconds if seconds else 0.0, features, changes, unanswered_seconds)
    if settings.coscheduling:
        cache.groups.use_coscheduling_label()
    return cache


class RuleCalls:
    """Ends calls of users' rules long after their deadline, and warns of those that run on.

    C code that keeps the interpreter to itself, as a regular expression does, stops all threads of the process. Then a
    thread of C writes to stderr where each of them is.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._known = 0

    def look(self) -> None:
        faulthandler.dump_traceback_later(FROZEN_SECONDS, file=2)
        stuck = end_abandoned(self._clock.monotonic())
        self._telemetry.rule_calls_stuck(len(stuck))
        if len(stuck) > self._known:
            places = ", ".join(sorted({f"{rule} ({place})" if place else rule for rule, place in stuck}))
            _log.warning("rule calls cannot be ended, restart the process calls=%d rules=%r", len(stuck), places)
        self._known = len(stuck)


def let_expire(expiry: Expiry, consequence: str) -> None:
    """Expires the assumed pods whose time to live has ended, and logs each of them.

    `consequence` says in the log what happens to an expired pod next.
    """
    try:
        expired = expiry.sweep()
    except ClusterError as error:
        _log.warning("assumed pods kept beyond their time, because pods cannot be listed reason=%r", str(error))
        return
    for key in expired:
        _log.warning("assumed pod expired, no watch or list shows its bind pod=%s consequence=%r", key, consequence)


def relist_interrupted(cache: Cache, lister: Lister[Object]) -> None:
    """If an error interrupted a change in the cache, lists all objects of that kind again to repair the cache."""
    for kind in cache.interrupted_kinds():
        if kind in lister.kinds():
            lister.relist(kind, "an error interrupted a change of an object of this kind in the cache")


def activate(refused: RefusedPods, activator: Activator) -> None:
    """If a pod was refused on every node but fits now, makes the scheduler try the pod again."""
    for pod in refused.fitting():
        activator.activate(pod)


def preempt(refused: RefusedPods, preemption: RulePreemption) -> None:
    """Evicts pods to help pods that only users' rules have refused. The next call repeats evictions that failed."""
    pods = refused.take(preemption.rules())
    failed = [uid for uid, _ in pods]  # an unexpected error counts as a failure for every pod
    try:
        failed = preemption.run(pods)
    finally:
        for uid in failed:
            refused.give_back(uid)


def forget_statuses(cache: Cache, statuses: ApiStatuses) -> None:
    """Forgets the statuses that were written for pods that have since been bound or deleted."""
    statuses.forget_others({uid for uid, pod in cache.pods().items() if not pod.node_name})


def settle(permits: Permits, cache: Cache) -> None:
    """Undoes the reservations of users' rules for pods whose bind got no answer and has failed.

    The reservations stay if the cache shows that the pod was bound, or while the outcome is unknown.
    """
    permits.settle(lambda uid, node_name: is_bound(cache.placement(uid), node_name))


def compare(comparer: Comparer) -> None:
    """Compares the cache with the API server, and logs a summary."""
    report = comparer.compare()
    tables = report.compared.get(TABLE, 0)
    _log.info(
        "cache compared objects=%d kinds=%d tables=%d differences=%d undecided=%d",
        sum(report.compared.values()) - tables,
        len(report.compared) - 1,
        tables,
        len(report.differences),
        len(report.undecided),
    )
    for kind, reason in report.unlisted.items():
        _log.warning("kind not compared kind=%s reason=%r", kind, reason)
