"""Tasks that a process runs now and then for its cache, and the limits that it sets for itself."""

from __future__ import annotations

import gc
import logging
import sys

from extender.cache.cache import Cache
from extender.cache.debugger import TABLE, Comparer
from extender.cache.expiry import Expiry
from extender.cache.pod_states import PodState
from extender.config.settings import Settings
from extender.errors import ClusterError
from extender.framework.permit import Permits
from extender.model.meta import Object
from extender.runtime import process_memory
from extender.runtime.ports import Lister
from extender.scheduler.rule_preemption import RulePreemption
from extender.verbs.refused_pods import Activator, RefusedPods

HOUSEKEEPING_SECONDS = 1.0
REVIVAL_SECONDS = 60.0  # between checks for threads that have ended; a probe of /livez checks sooner
REPAIR_SECONDS = 30.0
# A scheduler filters and binds at the same time, and the comparer may need a third table.
TABLES = 3
# The longest time that a thread keeps the interpreter from others. With the default of 5 ms the loop would starve the
# binders, and a call, which releases the interpreter in NumPy, would each time wait for the watches to give it back.
SWITCH_SECONDS = 0.001

_log = logging.getLogger(__name__)


def limit_process() -> None:
    """Limits garbage collection, the memory that the C library keeps, and the wait for the interpreter."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*process_memory.GC_THRESHOLDS)
    process_memory.PAUSES.start()
    process_memory.limit()


def prepare(cache: Cache, tables: int = 1) -> None:
    """Builds the tables that the first readers would have to wait for, and sizes memory for their decisions."""
    process_memory.limit(cache.size().nodes)
    cache.refresh(tables)
    gc.freeze()  # most listed objects stay for long, so collections need not scan them
    process_memory.use_huge_pages()


def time_to_live(settings: Settings) -> float:
    """Returns how many seconds a pod whose bind has an unknown outcome stays assumed; 0 for no limit.

    It is at least the time for which the bind may be in flight.
    """
    seconds = settings.assumed_ttl_seconds
    return max(seconds, settings.settle_seconds) if seconds else 0.0


def let_expire(expiry: Expiry, consequence: str) -> None:
    """Expires assumed pods whose time to live has passed, and logs them with the consequence."""
    try:
        expired = expiry.sweep()
    except ClusterError as error:
        _log.warning("assumed pods not expired, because pods cannot be listed reason=%r", str(error))
        return
    for key in expired:
        _log.warning("assumed pod expired, no watch or list shows its binding pod=%s consequence=%r", key, consequence)


def relist_interrupted(cache: Cache, lister: Lister[Object]) -> None:
    """Lists the kinds again of which an error has left a change half applied; the list repairs the cache."""
    for kind in cache.interrupted_kinds():
        if kind in lister.kinds():
            lister.relist(kind, "an error has interrupted a change of it")


def activate(refused: RefusedPods, activator: Activator) -> None:
    """Wakes the scheduler for pods that were refused on every node, and that fit now."""
    for pod in refused.fitting():
        activator.activate(pod)


def preempt(refused: RefusedPods, preemption: RulePreemption) -> None:
    """Preempts for pods that only users' rules have refused."""
    for uid in preemption.run(refused.take(preemption.rules())):
        refused.give_back(uid)


def settle(permits: Permits, cache: Cache) -> None:
    """Finishes or unreserves pods that users' rules have reserved for, and whose bindings got no answer."""

    def is_bound(uid: str, node_name: str) -> bool | None:
        placement = cache.placement(uid)
        if placement is not None and placement.state is not PodState.ADDED:
            return None
        return placement is not None and placement.node_name == node_name

    permits.settle(is_bound)


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
