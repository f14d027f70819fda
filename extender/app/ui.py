"""The pages of a running process: a copy of its cache that follows it, and is asked in its stead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from extender.cache.cache import Cache
from extender.cache.changes import NODE, POD, Update
from extender.cache.placements import PodPlacement
from extender.errors import ClusterError, ConfigurationError, MalformedInput, RuleFailed, UnknownNode
from extender.framework.profile import Profiles
from extender.model.meta import Object
from extender.offline.state import ClusterState
from extender.offline.what_if.hypothetical import answer_simulation
from extender.policy.policy import PROVIDERS
from extender.table import PodInfo
from extender.table.features import DEFAULT_FEATURES, FeatureGates
from extender.table.journal import BEGINNING
from extender.ui.documents import Arguments, Choices, Look, half_time
from extender.ui.site import Site
from extender.web.answers import Answer, Page, error_answer
from extender.web.worker.application import Handler

MOST_JUDGED = 200
SIMULATE = "/simulate"


def live_pages(cache: Cache, profiles: Profiles, waiting_for: Callable[[], str]) -> Mapping[str, Page]:
    """Returns the pages about the cache, judged by `profiles`.

    `waiting_for`: what must be there before, "" if it is.
    """
    follower = CacheFollower(cache, profiles)

    def look(_: Arguments) -> Look:
        if missing := waiting_for():
            raise ClusterError(f"not ready: {missing}")
        return follower.look()

    choices = Choices("this configuration", providers(profiles.features), MOST_JUDGED, half_time())
    return Site(look, choices).pages()


def simulation_handler(cache: Cache, profiles: Profiles, waiting_for: Callable[[], str]) -> Handler:
    """Returns what answers POST /simulate from a copy of the cache; one question at a time."""
    follower, asked = CacheFollower(cache, profiles), threading.Lock()

    def answer(body: bytes) -> Answer:
        if missing := waiting_for():
            return error_answer(503, f"not ready: {missing}")
        if not asked.acquire(blocking=False):
            return error_answer(503, "another simulation is under way: ask again")
        try:
            found = answer_simulation(follower.look().state, body)
        except (MalformedInput, ConfigurationError, UnknownNode) as error:
            return error_answer(400, str(error))
        except RuleFailed as error:
            return error_answer(500, str(error))
        finally:
            asked.release()
        return Answer(200, msgspec.json.encode(found) + b"\n")

    return answer


def providers(features: FeatureGates = DEFAULT_FEATURES) -> Mapping[str, Profiles]:
    """Returns the configurations that every site can compare with."""
    return {name: Profiles([provider()], features) for name, provider in PROVIDERS.items()}


class CacheFollower:
    """A ClusterState that is brought up to date with a cache when it is asked for; for one thread at a time.

    The cache's lock is held while the changes are read, never for an answer; and the table is this one's own, so that
    nothing that a page supposes can reach a decision.
    """

    def __init__(self, cache: Cache, profiles: Profiles) -> None:
        self._cache, self._profiles, self._cursor = cache, profiles, BEGINNING
        self._state = ClusterState((), profiles)
        self._infos: dict[str, PodInfo] = {}

    def look(self) -> Look:
        """Returns the cluster as it is now."""
        updates, self._cursor, everything = self._cache.view.updates_since(self._cursor)
        if everything:
            self._state, self._infos = ClusterState((), self._profiles), {}
        for update in updates:
            self._take_in(update)
        return Look(self._state, self._cursor, "live", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")

    def _take_in(self, update: Update) -> None:
        kind, key, present = update
        if kind == POD:
            self._take_in_pod(key, present)
        elif isinstance(present, Object):
            self._state.add(present)
        elif kind == NODE:
            self._state.table.remove_node(key)
        else:
            self._state.table.remove_object(kind, key)

    def _take_in_pod(self, uid: str, present: object) -> None:
        before = self._infos.pop(uid, None)
        if before is not None:
            self._state.remove_pod(before)
        if isinstance(present, PodPlacement):
            info, node = present.info, present.node_name
            present = info if info.pod.node_name == node else PodInfo(info.pod.placed_on(node))
        if isinstance(present, PodInfo):
            self._infos[uid] = present
            self._state.add_info(present)
