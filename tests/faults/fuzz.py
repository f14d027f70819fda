"""Posts mutated recordings to a running server and judges what comes back."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.answers import faults_of
from tests.faults.mutations import large_pod, many_names, mutated
from tests.recordings import Call, Mode, WatchEvent, calls_and_events

VERBS = ("filter", "prioritize", "preempt", "bind")
RARE = 500  # every so many requests one of the heavy ones
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
        self._port, self._seed = port, seed
        self._calls = {verb: [call.request for call in recorded_calls() if call.verb == verb] for verb in VERBS}
        self._connection: http.client.HTTPConnection | None = None

    def run(self, numbers: range) -> Verdict:
        """Sends the requests of these numbers, one after the other."""
        verdict = Verdict()
        for number in numbers:
            verb, body = self.request(number)
            status, headers, answer = self._post(verb, body)
            verdict.statuses[verb, status] += 1
            found = faults_of(verb, body, status, headers, answer)
            verdict.bad += [
                f"{fault} (request {number} of seed {self._seed}: {verb} {body[:300]!r})" for fault in found
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

    def _post(self, verb: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """One that the server has closed is opened anew; one that ends without an answer fails the run."""
        connection = self._connection or http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        self._connection = connection
        connection.request("POST", f"/scheduler/{verb}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.will_close:
            connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, answer
