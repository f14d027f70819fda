"""Creates the pages of `extender view`, and those of a running process with its simulations.

The pages of a running process show a copy of its cache, which `CacheFollower` keeps up to date.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path

from extender.cache.cache import Cache
from extender.cache.changes import POD, Update
from extender.cache.pod_states import PodPlacement
from extender.engine import DecisionLimit
from extender.errors import (
    ClusterError,
    ConfigurationError,
    DeadlineExceeded,
    MalformedInput,
    RuleFailed,
    TooExpensive,
    UnknownNode,
)
from extender.framework.profile import Profiles
from extender.model.meta import Object
from extender.offline.recording.reading import Recording
from extender.offline.recording.worlds import Rules
from extender.offline.state import ClusterState
from extender.offline.what_if.hypothetical import answer_simulation
from extender.policy.policy import PROVIDERS
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.runtime.questions import SECONDS, in_child
from extender.table import PodInfo
from extender.table.features import DEFAULT_FEATURES, FeatureGates
from extender.table.journal import BEGINNING
from extender.ui import Arguments, Choices, Look, Site, Timeline, position
from extender.web.access import UI
from extender.web.answers import Answer, Handler, Page, error_answer, json_answer
from extender.web.app import PageServer, PrivatePages

MOST_JUDGED = 200
LOOPBACK = "127.0.0.1"
_STEPS_KEPT = 8
_READ_EVERY_SECONDS = 10.0
_REST_PER_READING = 10  # after each reading, the thread pauses ten times as long as the reading took
LookOf = Callable[[Arguments], Look]
Reader = Callable[[], tuple[ClusterState, Sequence[str]]]


def live_pages(
    cache: Cache, profiles: Profiles, waiting_for: Callable[[], str | None], limit: TimeLimit = NO_LIMIT
) -> Mapping[str, Page]:
    """Returns the pages about the cluster in the cache, by path. Each pod is judged by its profile in `profiles`.

    Args:
        waiting_for: returns why the process is not ready; None once it is ready.
        limit: the time limit of each decision about a pod.
    """
    follower = CacheFollower(cache, profiles, limit)

    def look(_: Arguments) -> Look:
        missing = waiting_for()
        if missing is not None:
            raise ClusterError(f"not ready: {missing}")
        return follower.look()

    choices = Choices("this configuration", providers(profiles.features), MOST_JUDGED)
    return Site(look, choices, in_child).pages()


def simulation_handler(
    cache: Cache, profiles: Profiles, waiting_for: Callable[[], str | None], limit: TimeLimit = NO_LIMIT
) -> Handler:
    """Returns the handler of POST /simulate. It answers one request at a time, from a copy of the cache."""
    follower = CacheFollower(cache, profiles, limit)
    turn = threading.Lock()

    def answer(body: bytes) -> Answer:
        missing = waiting_for()
        if missing is not None:
            return error_answer(503, f"not ready: {missing}")
        if not turn.acquire(blocking=False):
            return error_answer(503, "another simulation is running; try again later")
        try:
            return in_child(partial(_simulation, follower.look().state, body))
        except TooExpensive as error:
            return error_answer(503, str(error))
        finally:
            turn.release()

    return answer


def _simulation(state: ClusterState, body: bytes) -> Answer:
    try:
        return json_answer(answer_simulation(state, body))
    except (MalformedInput, ConfigurationError, UnknownNode) as error:
        return error_answer(400, str(error))
    except RuleFailed as error:
        return error_answer(500, str(error))
    except DeadlineExceeded as error:
        return error_answer(503, str(error))


def providers(features: FeatureGates = DEFAULT_FEATURES) -> Mapping[str, Profiles]:
    """Returns the built-in configurations that the pages offer for comparison: name -> profiles."""
    return {name: Profiles([provider()], features) for name, provider in PROVIDERS.items()}


class CacheFollower:
    """A copy of a cache as a ClusterState. `look` updates the copy. One thread at a time may use it.

    The cache's lock is held only while changes are read, not while a page is rendered. The copy has its own table, so
    the hypothetical changes on a page cannot affect the process's decisions.
    """

    def __init__(self, cache: Cache, profiles: Profiles, limit: TimeLimit = NO_LIMIT) -> None:
        self._cache = cache
        self._profiles = profiles
        self._limit = DecisionLimit(limit)
        self._begin()

    def _begin(self) -> None:
        self._cursor = BEGINNING
        self._state = ClusterState((), self._profiles, self._limit)
        self._infos: dict[str, PodInfo] = {}

    def look(self) -> Look:
        """Brings the copy of the cache up to date, and returns it for a page to show."""
        updates, cursor, everything = self._cache.updates_since(self._cursor)
        if everything:
            self._begin()
        self._cursor = cursor
        for update in updates:
            self._apply(update)
        return Look(self._state, self._cursor, "live", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")

    def _apply(self, update: Update) -> None:
        kind, key, present = update
        if kind == POD:
            self._apply_pod(key, present)
        elif isinstance(present, Object):
            self._state.add(present)
        else:
            self._state.remove(kind, key)

    def _apply_pod(self, uid: str, present: object) -> None:
        previous = self._infos.pop(uid, None)
        if previous is not None:
            self._state.remove_pod(previous)
        if isinstance(present, PodPlacement):
            info, node = present.info, present.node_name
            present = info if info.pod.node_name == node else PodInfo(info.pod.placed_on(node))
        if isinstance(present, PodInfo):
            self._infos[uid] = present
            self._state.add_info(present)


class LiveCluster:
    """A cluster that is read again when a page is opened and the last reading is too old.

    A reading is used for ten seconds. If the reading took more than one second, it is used for ten times as long as it
    took. One thread at a time may use this object.

    Args:
        read: returns the cluster, and notes on what could not be read.
    """

    def __init__(self, read: Reader, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._revision = 0
        self._good_until = 0.0
        self._look = self._next_look()

    def look(self, _: Arguments) -> Look:
        """Returns the cluster, and reads it first if the last reading is too old.

        Raises the errors of `read`; the next call then reads the cluster again.
        """
        if self._clock() >= self._good_until:
            self._look = self._next_look()
        return self._look

    def _next_look(self) -> Look:
        began = self._clock()
        state, unread = self._read()
        ended = self._clock()
        self._good_until = ended + max(_READ_EVERY_SECONDS, _REST_PER_READING * (ended - began))
        self._revision += 1
        return Look(state, self._revision, "live cluster", _time(datetime.now(UTC).timestamp()), unread)


def look_at_cluster(state: ClusterState, source: str, unread: Sequence[str] = ()) -> LookOf:
    """Returns a function that returns this cluster for every page. `unread` lists what could not be read."""
    look = Look(state, 0, source, _time(datetime.now(UTC).timestamp()), unread)
    return lambda _: look


def look_at_recording(path: Path, profiles: Profiles | None, version: str | None = None) -> LookOf:
    """Returns a function that returns the recorded cluster for a page.

    If the page's arguments contain a step, that function returns the cluster before the step; otherwise, the cluster at
    the end of the recording.

    Args:
        profiles: the rules that judge the pods; None means the rules of the recording.
        version: the version of Kubernetes that the recording's rules follow; None means the recording's own.

    Raises:
        MalformedCluster, OSError: the recording cannot be read.
        ConfigurationError: the recording names a rule that no installed package has, so its policy must be given.
    """
    recording = Recording.load(path)
    if profiles is None:
        rules = Rules.of_recording(recording.header.settings)
        profiles = (rules.with_gates(version) if version else rules).profiles
    judged_by = profiles

    @lru_cache(maxsize=_STEPS_KEPT)
    def look_before(step: int) -> Look:
        timeline = Timeline(recording, step)
        state = ClusterState(recording.objects(step), judged_by)
        moment = _time(recording.steps[min(step, timeline.steps - 1)].at) if timeline.steps else ""
        return Look(state, step, path.name, moment, (), timeline)

    def look(arguments: Arguments) -> Look:
        last = len(recording.steps)
        argument = arguments.get("step")
        return look_before(last if argument is None else position("step", argument, last))

    return look


def view(look: LookOf, choices: Choices, port: int, announce: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Serves the pages until the process is interrupted.

    Args:
        choices: the configurations and clusters that the pages offer. If there is no configuration to compare with,
            the built-in configurations are added.
        announce: called with the address once the server listens.
        seconds: how long a page may take; 0 means that there is no limit.

    Raises:
        OSError: the port is in use.
    """
    site = Site(
        look, choices if choices.others else replace(choices, others=providers()), partial(in_child, seconds=seconds)
    )
    server = PageServer(LOOPBACK, port, PrivatePages(site.pages()))
    server.start()
    try:
        announce(f"http://{LOOPBACK}:{server.port}{UI}")
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
