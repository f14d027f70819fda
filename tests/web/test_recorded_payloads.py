"""The calls of a real kube-scheduler, over HTTP, to `extender serve` as it runs in production, with its own worker."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from extender.app.feed import feed_factory_of
from extender.app.serve import WebhookProcess
from extender.config.settings import Settings
from extender.model.kinds import KINDS
from extender.runtime.unsettled import UnsettledWrites
from tests.recordings import Call, Mode, WatchEvent, calls_and_events
from tests.stock.waiting import wait_until
from tests.web.servers import Server, Wire, get, post, running

pytestmark = pytest.mark.processes

KIND_OF = {kind.plural: kind for kind in KINDS.values()}
VERBS = {"filter", "prioritize", "preempt", "bind"}


def cluster_of(mode: Mode, folder: Path) -> Path:
    """The recorded objects as they first were, but without nodes for pods."""
    objects: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in calls_and_events(mode):
        if isinstance(entry, WatchEvent):
            kind = KIND_OF[entry.resource]
            known = {**entry.object, "kind": kind.name, "apiVersion": kind.api_version}
            objects.setdefault((entry.resource, entry.object["metadata"]["uid"]), known)
    for (resource, _), obj in objects.items():
        if resource == "pods":
            obj["spec"].pop("nodeName", None)
    path = folder / f"{mode}.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects.values())}))
    return path


def answers_in_process(cluster: Path, calls: list[Call]) -> list[bytes]:
    """The answers of the verbs of a process that was started in this one, without HTTP."""
    settings = Settings(cluster=cluster)
    process = WebhookProcess(settings, feed_factory_of(settings), UnsettledWrites(settings.settle_seconds))
    process.start()
    try:
        assert wait_until(lambda: not any(process.upkeep.waiting_for().values()))
        verbs = {verb.name: verb for verb in process.backend().verbs}
        found = []
        for call in calls:
            verb = verbs[call.verb]
            request = verb.decode(json.dumps(call.request).encode())
            found.append(bytes(verb.encode(request, verb.decide(request))))
        return found
    finally:
        process.stop()


@dataclass
class Recorded:
    calls: list[Call]
    in_process: list[bytes]
    server: Server


@pytest.fixture(scope="module", params=["names", "full"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    cluster = cluster_of(request.param, tmp_path_factory.mktemp("cluster"))
    calls = [entry for entry in calls_and_events(request.param) if isinstance(entry, Call)]
    command = ["serve", "--bind", "127.0.0.1:0", "--drain-seconds", "0", "--cluster", str(cluster)]
    with running(
        [*command, "--log-format", "text"], program=[str(Path(sys.executable).with_name("extender"))]
    ) as server:
        assert wait_until(lambda: server.ask(get("/readyz")).status == 200)
        yield Recorded(calls, answers_in_process(cluster, calls), server)


def chunked(call: Call, size: int) -> bytes:
    """The call as a client sends it that does not know the length of the body."""
    body = json.dumps(call.request).encode()
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    head = post(b"", f"/scheduler/{call.verb}", Content_Length="", Transfer_Encoding="chunked")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def test_every_recorded_call_gets_the_answer_of_the_verb_itself(recorded: Recorded) -> None:
    """kube-scheduler binds over other connections than those of its questions; both stay open."""
    questions, binds = recorded.server.connect(), recorded.server.connect()
    with questions.socket, binds.socket:
        for call, expected in zip(recorded.calls, recorded.in_process, strict=True):
            wire: Wire = binds if call.verb == "bind" else questions
            body = json.dumps(call.request).encode()
            reply = wire.send(post(body, f"/scheduler/{call.verb}")).reply()
            assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
            assert reply.body == expected, call.verb
    counts = Counter(call.verb for call in recorded.calls)
    assert counts.keys() == VERBS
    metrics = recorded.server.ask(get("/metrics")).body.decode()
    counted: Counter[str] = Counter()
    for verb, number in re.findall(
        r'^extender_verb_duration_seconds_count{.*verb="(\w+)"} (\d+)', metrics, re.MULTILINE
    ):
        counted[verb] += int(number)
    assert counted == counts


def test_questions_in_chunks_and_in_a_row_get_the_same_answers(recorded: Recorded) -> None:
    """Binds are over, so that the cluster stays the same: each question is asked in three ways."""
    for verb in sorted(VERBS - {"bind"}):
        call = next(call for call in recorded.calls if call.verb == verb)
        body = json.dumps(call.request).encode()
        plain = post(body, f"/scheduler/{call.verb}")
        with (wire := recorded.server.connect()).socket:
            wire.send(plain + chunked(call, 4096) + chunked(call, 61) + plain)
            first, *others = [wire.reply() for _ in range(4)]
        assert first.status == 200
        assert [other.body for other in others] == [first.body] * 3
