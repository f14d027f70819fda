"""The work that a process does for its cache now and then, and the limits that it sets itself."""

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
REVIVAL_SECONDS = 60.0  # where nobody asks for /livez, which looks after the threads too
REPAIR_SECONDS = 30.0
# A scheduler filters and binds at the same time; the comparer may have a third.
TABLES = 3
# How soon a thread that waits for the interpreter gets it. At the default of 5 ms the loop would starve the binders,
# and a call, which lets go of it in NumPy now and then, would wait each time for the watch.
SWITCH_SECONDS = 0.001

_log = logging.getLogger(__name__)


def limit_process() -> None:
    """Sets how garbage is collected, how much memory the C library keeps, and how soon threads get their turn."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*process_memory.GC_THRESHOLDS)
    process_memory.PAUSES.start()
    process_memory.limit()


def prepare(cache: Cache, tables: int = 1) -> None:
    """Makes the tables that the first readers would have to wait for, and room for the arrays of their decisions."""
    process_memory.limit(cache.size().nodes)
    cache.refresh(tables)
    gc.freeze()  # What was listed stays: no collection needs to look at it again.
    process_memory.use_huge_pages()


def time_to_live(settings: Settings) -> float:
    """Returns the seconds for which a bind of unknown outcome holds its place: not less than it may be in flight."""
    seconds = settings.assumed_ttl_seconds
    return seconds and max(seconds, settings.settle_seconds)


def let_expire(expiry: Expiry, consequence: str) -> None:
    """Lets assumed pods expire that are over, and logs them."""
    try:
        expired = expiry.sweep()
    except ClusterError as error:
        _log.warning("assumed pods whose time is over keep their places, for nobody can tell: %s", error)
        return
    for key in expired:
        _log.warning("%s: no watch has confirmed its binding, and no list shows it: %s", key, consequence)


def relist_interrupted(cache: Cache, lister: Lister[Object]) -> None:
    """Lists again the kinds of which an error has left a change half made in the cache; the list repairs it."""
    for kind in cache.interrupted_kinds():
        if kind in lister.kinds():
            lister.relist(kind, "an error has interrupted a change of it")


def activate(refused: RefusedPods, activator: Activator) -> None:
    """Brings pods to the scheduler's notice that it was told fit nowhere, and that fit by now."""
    for pod in refused.fitting():
        activator.activate(pod)


def preempt(refused: RefusedPods, preemption: RulePreemption) -> None:
    """Makes room for pods that only users' rules have refused."""
    for uid in preemption.run(refused.take(preemption.rules())):
        refused.give_back(uid)


def settle(permits: Permits, cache: Cache) -> None:
    """Finishes or unreserves the pods with rules of Reserve whose bindings ended without an answer."""

    def is_bound(uid: str, node_name: str) -> bool | None:
        placement = cache.placement(uid)
        if placement is not None and placement.state is not PodState.ADDED:
            return None
        return placement is not None and placement.node_name == node_name

    permits.settle(is_bound)


def compare(comparer: Comparer) -> None:
    """Compares the cache with the API server, and logs what was found."""
    report = comparer.compare()
    tables, kinds = report.compared.get(TABLE, 0), len(report.compared) - 1
    objects = sum(report.compared.values()) - tables
    parts = [f"compared the cache: {objects} objects of {kinds} kinds, {tables} tables"]
    parts.append(f"{len(report.differences)} differences")
    if report.undecided:
        parts.append(f"{len(report.undecided)} undecided, for the watches are behind")
    parts += [f"no list of {kind}: {why}" for kind, why in report.unlisted.items()]
    _log.info("%s", ", ".join(parts))
