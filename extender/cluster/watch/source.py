"""A live cluster: one reflector and one thread for every kind, from start to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from random import Random

from extender.cluster.http.connection import Connection, message_of
from extender.cluster.http.http1 import Answer, Hung
from extender.cluster.watch.list_watch_state import Failure, List, Wait, Watch
from extender.cluster.watch.reflector import Reflector
from extender.errors import ClusterError
from extender.model.kinds import Kind
from extender.model.meta import Object
from extender.runtime.clock import Clock
from extender.runtime.ports import Sink, Telemetry

logger = logging.getLogger(__name__)

LIST_SILENCE_SECONDS = 30.0
# Of a kind in which nothing happens nothing is heard, no bookmark either, and a connection that hangs sounds the same.
# So a watch that was silent for so long is opened anew where it was: that costs little, and a hung server won't answer.
WATCH_SILENCE_SECONDS = 90.0
_JOIN_SECONDS = 5.0

# Finished pods hold nothing; kube-scheduler leaves them out in the same way.
FIELD_SELECTORS = {"Pod": "status.phase!=Succeeded,status.phase!=Failed"}


class ClusterSource:
    """Keeps a sink equal to the cluster. `start` after the fork: its threads would not live through one."""

    def __init__(
        self,
        connection: Connection,
        kinds: Iterable[Kind],
        sink: Sink[Object],
        telemetry: Telemetry,
        clock: Clock,
        random: Random,
    ) -> None:
        self._connection, self._clock = connection, clock
        self._reflectors = [Reflector(kind, sink, telemetry, Random(random.random())) for kind in kinds]  # noqa: S311  no secret is made of it
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begins to list and watch; returns at once."""
        for reflector in self._reflectors:
            thread = threading.Thread(
                target=self._follow, args=(reflector,), name=f"reflector-{reflector.kind.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def unsynced(self) -> list[str]:
        """The kinds that the sink has not had in full yet; kinds that the API server does not serve left out."""
        return [reflector.kind.name for reflector in self._reflectors if reflector.served and not reflector.synced]

    def synced(self) -> list[str]:
        """The kinds that the sink has had in full."""
        return [reflector.kind.name for reflector in self._reflectors if reflector.synced]

    def version(self, kind: str) -> str:
        """The version that the sink is at with `kind`; "" before its first list, and while it is listed anew."""
        return next((reflector.version for reflector in self._reflectors if reflector.kind.name == kind), "")

    def wait_until_synced(self, timeout_seconds: float) -> bool:
        """Whether every kind was synced in that time; False too if the source is stopped."""
        deadline = self._clock.monotonic() + timeout_seconds
        while self.unsynced():
            if self._clock.monotonic() >= deadline or self._stopping.wait(0.01):
                return False
        return True

    def stop(self) -> None:
        """Ends the watches and the connection."""
        self._stopping.set()
        self._connection.close()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _follow(self, reflector: Reflector) -> None:
        while not self._stopping.is_set():
            try:
                self._advance(reflector)
            except Exception:  # a fault of ours in one event must not end the watching of a kind
                logger.exception("reflector of %s", reflector.kind.name)
                reflector.broken(Failure.UNTOLD, self._clock.monotonic())

    def _advance(self, reflector: Reflector) -> None:
        match reflector.step(self._clock.monotonic()):
            case Wait(seconds):
                self._stopping.wait(seconds)
            case List(continue_token, limit):
                query = {"limit": str(limit)} if limit else {}
                self._ask(reflector, query | ({"continue": continue_token} if continue_token else {}))
            case Watch(version, timeout_seconds):
                query = {"watch": "1", "allowWatchBookmarks": "1", "timeoutSeconds": str(timeout_seconds)}
                self._ask(reflector, {**query, "resourceVersion": version})

    def _ask(self, reflector: Reflector, query: dict[str, str]) -> None:
        watching = "watch" in query
        if selector := FIELD_SELECTORS.get(reflector.kind.name):
            query["fieldSelector"] = selector
        silence_seconds = WATCH_SILENCE_SECONDS if watching else LIST_SILENCE_SECONDS
        try:
            with self._connection.get(reflector.kind.path, query, silence_seconds) as answer:
                self._read(reflector, answer, watching)
        except ClusterError as error:
            reflector.broken(Failure.OTHER, self._clock.monotonic())
            if not self._stopping.is_set():
                logger.warning("%s of %s: %s", "watch" if watching else "list", reflector.kind.name, error)

    def _read(self, reflector: Reflector, answer: Answer, watching: bool) -> None:
        failure: Failure | None
        if answer.status != 200:
            failure = self._refuse(reflector, answer)
        elif watching:
            failure = self._watch(reflector, answer)
        else:
            failure = reflector.page(answer.read(), self._clock.monotonic())
        if failure is Failure.MALFORMED:
            logger.warning("%s of %s cannot be read", "watch" if watching else "list", reflector.kind.name)

    def _refuse(self, reflector: Reflector, answer: Answer) -> Failure:
        message = message_of(answer.read())
        known = reflector.served
        failure = reflector.refused(answer.status, _retry_after_seconds(answer), self._clock.monotonic())
        if reflector.served:
            logger.warning("%s: the API server answers %s: %s", reflector.kind.name, answer.status, message)
        elif known:
            logger.info("%s: the API server does not serve %s, left out", reflector.kind.name, reflector.kind.path)
        return failure

    def _watch(self, reflector: Reflector, answer: Answer) -> Failure | None:
        reflector.opened()
        try:
            for piece in answer.pieces():
                failure = reflector.receive(piece, self._clock.monotonic())
                if failure:
                    return failure
        except Hung:
            logger.debug("watch of %s was silent: opened anew", reflector.kind.name)
        return reflector.ended(self._clock.monotonic())


def _retry_after_seconds(answer: Answer) -> float:
    value = answer.header(b"retry-after")
    return min(float(value), 60.0) if value.isascii() and value.isdigit() else 0.0
