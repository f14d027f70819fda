"""Posts mutated recordings to a running server and judges what comes back."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from tests.faults.answers import faults_of
from tests.faults.mutations import large_pod, many_names, mutated
from tests.recordings import Call, Mode, WatchEvent, calls_and_events

VERBS = ("filter", "prioritize", "preempt", "bind")
RARE = 500  # every so many requests one of the heavy ones
_BATCH, _BATCH_BYTES = 16, 2**16
Response = tuple[int, Mapping[str, str], bytes]  # status, headers by their names in small letters, body
_MODES: tuple[Mode, ...] = ("names", "full")


def recorded_calls() -> list[Call]:
    """Every call of both recordings."""
    return [entry for mode in _MODES for entry in calls_and_events(mode) if isinstance(entry, Call)]


def write_cluster(path: Path) -> None:
    """The objects of a recording as a snapshot, each as it was last seen before it was deleted; pods as yet unbound."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in calls_and_events("names"):
        if isinstance(entry, WatchEvent):
            metadata = entry.object["metadata"]
            key = (entry.resource, f"{metadata.get('namespace')}/{metadata['name']}")
            if entry.type != "DELETED" and (entry.resource != "pods" or key not in last):
                last[key] = entry.object
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*last.values()]}))


@dataclass
class Verdict:
    """The findings of a run of the fuzzer; `bad` holds seeds that show it again."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Takes in another's findings."""
        self.statuses += other.statuses
        self.bad += other.bad


class Fuzzer:
    """Request number n of a seed is the same in every run."""

    def __init__(self, port: int, seed: int) -> None:
        self._seed, self._pipeline = seed, Pipeline(port)
        self._calls = {verb: [call.request for call in recorded_calls() if call.verb == verb] for verb in VERBS}

    def run(self, numbers: range) -> Verdict:
        """Sends the requests of these numbers, one after the other."""
        verdict = Verdict()
        for batch in self._batches(numbers):
            answers = self._pipeline.post([(verb, body) for _, verb, body in batch])
            for (number, verb, body), (status, headers, answer) in zip(batch, answers, strict=True):
                verdict.statuses[verb, status] += 1
                verdict.bad += [
                    f"{fault} (request {number} of seed {self._seed}: {verb} {body[:300]!r})"
                    for fault in faults_of(verb, body, status, headers, answer)
                ]
        return verdict

    def request(self, number: int) -> tuple[str, bytes]:
        """The verb and body of one request."""
        random = Random(f"{self._seed} {number}")
        verb = random.choice(VERBS)
        recorded = random.choice(self._calls[verb])
        if number % RARE == RARE - 1 and verb != "bind":
            return verb, random.choice((many_names, large_pod))(recorded, random)
        return verb, mutated(recorded, random)

    def _batches(self, numbers: range) -> Iterator[list[tuple[int, str, bytes]]]:
        """So much at once as a socket takes whether or not the server reads on: else both might wait for each other."""
        batch, size = list[tuple[int, str, bytes]](), 0
        for number in numbers:
            verb, body = self.request(number)
            if batch and (size + len(body) > _BATCH_BYTES or len(batch) == _BATCH):
                yield batch
                batch, size = [], 0
            batch.append((number, verb, body))
            size += len(body)
        if batch:
            yield batch


class Pipeline:
    """One connection, on which many requests are sent before the first is answered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._answers: BinaryIO

    def post(self, requests: list[tuple[str, bytes]]) -> list[Response]:
        """The answers in their order; where the server has closed, the rest is sent again. Raises ConnectionError."""
        answered: list[Response] = []
        together = len(requests)
        while rest := requests[len(answered) : len(answered) + together]:
            try:
                for response in self._exchange(rest):
                    answered.append(response)  # noqa: PERF402  those before an error count
            except ConnectionError:
                self._close()
                if len(rest) == 1:  # one request alone is answered, whatever becomes of the connection
                    raise
                together = 1
        return answered

    def _exchange(self, requests: list[tuple[str, bytes]]) -> Iterator[Response]:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=300)  # on a busy machine
            self._answers = self._socket.makefile("rb")
        self._socket.sendall(b"".join(head(verb, len(body)) + body for verb, body in requests))
        for _ in requests:
            response = self._read()
            yield response
            if response[1].get("connection") == "close":
                self._close()
                return

    def _read(self) -> Response:
        line = self._answers.readline()
        if not line:
            raise ConnectionError("the connection has ended without an answer")
        headers: dict[str, str] = {}
        while (field_line := self._answers.readline()) not in (b"\r\n", b""):
            name, _, value = field_line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split()[1]), headers, self._answers.read(int(headers["content-length"]))

    def _close(self) -> None:
        if self._socket is not None:
            self._answers.close()
            self._socket.close()
            self._socket = None


def head(verb: str, length: int) -> bytes:
    fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"POST /scheduler/{verb} HTTP/1.1\r\n{fields}\r\n".encode()


def fuzz(port: int, seed: int, numbers: range) -> Verdict:
    """What a process of its own does: the clients cost more than the server."""
    return Fuzzer(port, seed).run(numbers)
