"""Follows an API server. One thread for each kind lists and watches its objects; two threads check the watches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from random import Random

from extender.cluster.kube_client import KubeClient, message_of
from extender.cluster.pool import Hung, Response
from extender.cluster.watch.api_objects import (
    LIST_SILENCE_SECONDS,
    Malformed,
    decoders,
    list_all,
    list_query,
    query_of,
    version_number,
)
from extender.cluster.watch.list_watch_state import List, ListWatchFailure, Pause, Watch
from extender.cluster.watch.reflector import Reflector
from extender.cluster.watch.survey import Survey, Surveyor
from extender.errors import ClusterError
from extender.model.kinds import Kind
from extender.model.meta import Object
from extender.runtime.clock import Clock
from extender.runtime.ports import Sink, Telemetry
from extender.runtime.threads import LastingThread

logger = logging.getLogger(__name__)

# A watch that is silent for this long may have lost its connection, so it is closed and continued by a new one.
WATCH_SILENCE_SECONDS = 90.0
SURVEY_POLL_SECONDS = 1.0
_JOIN_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 1.0  # longer pauses are split into waits of this length, so that they can end early


class ClusterSource:
    """Keeps a sink equal to the cluster, and implements ports.Lister.

    Call `start` after a fork, because threads do not survive it.
    """

    def __init__(
        self,
        client: KubeClient,
        kinds: Iterable[Kind],
        sink: Sink[Object],
        telemetry: Telemetry,
        clock: Clock,
        random: Random,
    ) -> None:
        self._client = client
        self._clock = clock
        self._reflectors = [Reflector(kind, sink, telemetry, Random(random.random())) for kind in kinds]  # noqa: S311  for pauses
        self._by_kind = {reflector.kind.name: reflector for reflector in self._reflectors}
        self._states = {name: reflector.state for name, reflector in self._by_kind.items()}
        self._watches: dict[Reflector, Response] = {}  # the open watches
        self._interrupted: set[Reflector] = set()
        self._surveyor = Surveyor(self._reflectors, self._ask_survey, telemetry, clock)
        self._stopping = threading.Event()
        self._threads = [
            LastingThread(f"reflector-{name}", partial(self._follow, reflector))
            for name, reflector in self._by_kind.items()
        ]
        self._threads.append(LastingThread("surveys", self._survey))
        self._threads.append(LastingThread("survey-follow-up", self._follow_up))

    def start(self) -> None:
        """Starts the threads that list and watch; returns at once."""
        for thread in self._threads:
            thread.start()

    def revive(self) -> list[str]:
        """Restarts threads that have ended, unless the source is stopped; returns their names."""
        return [] if self._stopping.is_set() else [thread.name for thread in self._threads if thread.revive()]

    def unsynced(self) -> list[str]:
        """Returns the served kinds whose list is not complete. Must be cheap, because every extender call needs it."""
        return [name for name, state in self._states.items() if not state.synced and state.served]

    def kinds(self) -> Sequence[str]:
        """Returns the kinds for which the sink has received a whole list; see ports.Lister."""
        return [reflector.kind.name for reflector in self._reflectors if reflector.state.synced]

    def version(self, kind: str) -> str:
        """Returns the version up to which the sink has all changes of `kind`; "" while it is being listed."""
        reflector = self._by_kind.get(kind)
        return reflector.state.version if reflector else ""

    def serves(self, kind: str) -> bool:
        """Returns True if this source follows the kind and the API server serves it."""
        return kind in self._states and self._states[kind].served

    def survey(self, kind: str) -> Survey:
        """Lists the UIDs and versions of a kind's objects. `Survey.confirmed` then says if the sink has them all.

        Raises:
            Refused, OutcomeUnknown: the list has failed.
        """
        return self._surveyor.survey(self._by_kind[kind])

    def relist(self, kind: str, why: str) -> None:
        self._distrust(self._by_kind[kind], why)

    def _restored(self, why: str) -> None:
        for reflector in self._reflectors:
            if reflector.state.version:
                self._distrust(reflector, f"the API server was restored from a backup: {why}")

    def _distrust(self, reflector: Reflector, why: str) -> None:
        """Makes the reflector list everything again. Its kind is not synced until this list is delivered."""
        if reflector.state.synced:
            logger.warning("watch unreliable, listing again kind=%s reason=%r", reflector.kind.name, why)
        reflector.state.distrust()
        if (watch := self._watches.get(reflector)) is not None:
            watch.abort()

    def list(self, kind: str) -> tuple[str, Sequence[Object]]:
        followed = self._by_kind[kind].kind
        return list_all(self._client, followed, decoders(followed)[0])

    def has_delivered(self, kind: str, version: str) -> bool:
        delivered = self.version(kind)
        try:
            return bool(delivered) and version_number(delivered) >= version_number(version)
        except Malformed:
            return False

    def stop(self) -> None:
        """Ends the watches and every call of the client."""
        for thread in self._threads:
            thread.let_end()
        self._stopping.set()
        self._client.close()
        for thread in self._threads:
            thread.stop(_JOIN_SECONDS)

    def _follow(self, reflector: Reflector) -> None:
        if reflector.state.version:  # the previous thread has ended, perhaps in the middle of an event
            self._distrust(reflector, "its thread had ended")
        while not self._stopping.is_set():
            try:
                self._advance(reflector)
            except Exception:  # the sink may have received half of an event; the next list corrects that
                logger.exception("reflector failed, listing again kind=%s", reflector.kind.name)
                reflector.broken(ListWatchFailure.SINK, self._clock.monotonic())

    def _ask_survey(self, reflector: Reflector) -> Survey:
        return Survey(self._client, reflector, self._clock, partial(self._distrust, reflector), self._restored)

    def _survey(self) -> None:
        while not self._stopping.is_set():
            if not self._surveyor.survey_next():
                self._stopping.wait(SURVEY_POLL_SECONDS)

    def _follow_up(self) -> None:
        while not self._stopping.wait(SURVEY_POLL_SECONDS):
            self._surveyor.follow_up()

    def _advance(self, reflector: Reflector) -> None:
        match reflector.step(self._clock.monotonic()):
            case Pause(seconds):
                self._stopping.wait(min(seconds, _LONGEST_WAIT_SECONDS))
            case List() as step:
                self._interrupted.discard(reflector)
                self._ask(reflector, list_query(reflector.kind, step))
            case Watch() as step:
                self._follow_events(reflector, step)

    def _follow_events(self, reflector: Reflector, step: Watch) -> None:
        query = {"watch": "1", "allowWatchBookmarks": "1", "timeoutSeconds": str(step.timeout_seconds)}
        opened_at = self._clock.monotonic()
        self._ask(reflector, query_of(reflector.kind, **query, resourceVersion=step.version))
        if self._clock.monotonic() - opened_at < step.timeout_seconds:
            self._interrupted.add(reflector)  # the entry is removed when the API server accepts the next watch

    def _ask(self, reflector: Reflector, query: dict[str, str]) -> None:
        watching = "watch" in query
        silence_seconds = WATCH_SILENCE_SECONDS if watching else LIST_SILENCE_SECONDS
        try:
            with self._client.get_all(reflector.kind, query, silence_seconds) as response:
                self._read(reflector, response, watching)
        except ClusterError as error:
            reflector.broken(ListWatchFailure.OTHER, self._clock.monotonic())
            if not self._stopping.is_set():
                logger.warning(
                    "API request failed verb=%s kind=%s reason=%r", _verb(watching), reflector.kind.name, str(error)
                )

    def _read(self, reflector: Reflector, response: Response, watching: bool) -> None:
        failure: ListWatchFailure | None
        if response.status != 200:
            failure = self._refuse(reflector, response, watching)
        elif watching:
            failure = self._watch(reflector, response)
        else:
            failure = reflector.page(response.read(), self._clock.monotonic())
        if failure is ListWatchFailure.MALFORMED:
            logger.warning("API response not decoded verb=%s kind=%s", _verb(watching), reflector.kind.name)

    def _refuse(self, reflector: Reflector, response: Response, watching: bool) -> ListWatchFailure:
        message = message_of(response.read())
        was_served = reflector.state.served
        failure = reflector.refused(response.status, _retry_after_seconds(response), self._clock.monotonic())
        if reflector.state.served:
            logger.warning(
                "API request refused verb=%s kind=%s status=%s reason=%r",
                _verb(watching),
                reflector.kind.name,
                response.status,
                message,
            )
        elif was_served:
            logger.info("kind not served, ignored kind=%s path=%s", reflector.kind.name, reflector.kind.path)
        return failure

    def _watch(self, reflector: Reflector, response: Response) -> ListWatchFailure | None:
        reflector.opened()
        # While no watch was open, the API server may have been restored and have reached the same version again.
        if reflector in self._interrupted:
            self._interrupted.discard(reflector)
            self._surveyor.hurry(reflector)
        self._watches[reflector] = response
        try:
            # If `_distrust` was called before this watch was registered, the call could not end the watch.
            if not reflector.state.synced:
                return reflector.broken(ListWatchFailure.OTHER, self._clock.monotonic())
            for piece in response.pieces():
                failure = reflector.receive(piece, self._clock.monotonic())
                if failure:
                    return failure
        except Hung:
            logger.debug("watch silent, opening it again kind=%s", reflector.kind.name)
        finally:
            del self._watches[reflector]
        return reflector.ended(self._clock.monotonic())


def _verb(watching: bool) -> str:
    return "watch" if watching else "list"


def _retry_after_seconds(response: Response) -> float:
    value = response.header(b"retry-after")
    return min(float(value), 60.0) if value.isascii() and value.isdigit() else 0.0
