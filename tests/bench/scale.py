"""50,000 nodes and 200,000 pods: how soon a process is ready, what it takes, and how long its decisions stand still.

`extender schedule` and `extender serve` run as processes against an API server that only lists, watches and binds.
While something happens to the whole cluster the longest pause is noted: of the loop between two bindings of a backlog,
of the webhook in one call of filter; as CPU time of the process, all its threads together, so that neither the API
server nor another process lengthens it.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from itertools import count, cycle, islice, pairwise
from pathlib import Path
from random import Random
from uuid import UUID

from tests.bench.large_api import NODES, PODS, LargeApi
from tests.bench.workloads import VARIED, large_cluster, node_name, pods_to_decide, pods_to_schedule
from tests.builders import Object
from tests.running import SCHEDULER_NAME, Running, schedule, serve

NODES_AT_SCALE = 50_000
EVENTS_PER_SECOND, WATCHED_SECONDS = 5000, 5.0
BACKLOG = 6000  # more than are bound while a list takes the place of a watch
_NAMES = 500
_TICK_SECONDS = 0.01
_READY_SECONDS = 300
_BIND_SECONDS = 30


@dataclass(frozen=True)
class Figure:
    """A figure and its target, which issue 16 sets."""

    what: str
    value: float
    unit: str
    target: float


def measured(nodes: int, seconds: float = WATCHED_SECONDS, backlog: int = BACKLOG) -> Iterator[Figure]:
    """Yields each figure; as many pods as `backlog` wait for the loop at any time, and all must find room."""
    cluster = large_cluster(nodes)
    with LargeApi(cluster.nodes, map(as_served, cluster.pods, count())) as api, tempfile.TemporaryDirectory() as path:
        directory = Path(path)
        kubeconfig = api.kubeconfig(directory)
        begin = time.monotonic()
        with schedule(kubeconfig, directory, "--log-level=error", timeout_seconds=_READY_SECONDS) as loop:
            yield from _start("loop", loop, time.monotonic() - begin)
            api.clock = partial(_cpu_seconds, loop)
            yield from _pauses("loop", api, _Backlog(api, backlog).longest_pause, seconds)
            yield Figure("loop: memory at its peak", _memory_mib(loop, "VmHWM"), "MiB", 1536)
        begin = time.monotonic()
        with serve(kubeconfig, directory, "--log-level=error", timeout_seconds=_READY_SECONDS) as webhook:
            yield from _start("webhook", webhook, time.monotonic() - begin)
            yield from _pauses("webhook", api, lambda during: _longest_call(webhook, nodes, during), seconds)
            yield Figure("webhook: memory at its peak", _memory_mib(webhook, "VmHWM"), "MiB", 1536)


def as_served(pod: Object, number: int) -> Object:
    """Returns the pod with what the API server, a controller and the kubelet add to it."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"rs-{number % 4000}", "controller": True}
    metadata = {**pod["metadata"], "uid": str(UUID(int=number + 1)), "creationTimestamp": "2026-10-01T00:00:00Z"}
    metadata["ownerReferences"] = [{**owner, "uid": str(UUID(int=2**64 + number % 4000))}]
    unreachable = [{"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute"}
                   for why in ("not-ready", "unreachable")]  # fmt: skip
    token = {"name": f"kube-api-access-{number:05x}", "projected": {"sources": [], "defaultMode": 420}}
    conditions = [{"type": each, "status": "True"} for each in ("Initialized", "Ready", "PodScheduled")]
    resources = pod["spec"]["containers"][0].get("resources", {})
    state = {"name": "c", "ready": True, "allocatedResources": resources.get("requests"), "resources": resources}
    spec = {**pod["spec"], "volumes": [token], "tolerations": unreachable}
    status = {**pod["status"], "conditions": conditions, "containerStatuses": [state]}
    return {**pod, "metadata": metadata, "spec": spec, "status": status if "nodeName" in spec else {}}


def _start(name: str, process: Running, seconds: float) -> Iterator[Figure]:
    yield Figure(f"{name}: ready after", seconds, "s", 30)
    yield Figure(f"{name}: CPU time until then", process.process.cpu_seconds(), "s", 30)
    yield Figure(f"{name}: memory when ready", _memory_mib(process, "VmRSS"), "MiB", 1536)


def _memory_mib(process: Running, field: str) -> float:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    workers = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children").read_text().split()
    texts = [status, *(Path(f"/proc/{worker}/status").read_text() for worker in workers)]
    return max(int(line.split()[1]) / 1024 for text in texts for line in text.splitlines() if line.startswith(field))


def _cpu_seconds(process: Running) -> float:
    """Returns the CPU time of the process and its workers so far, to the microsecond."""
    pid = process.process.pid
    pids = [f"{pid}", *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    nanos = 0
    for path in (path for each in pids for path in Path(f"/proc/{each}/task").glob("*/schedstat")):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended just now
            nanos += int(path.read_text().split()[0])
    return nanos / 1e9


def _pauses(name: str, api: LargeApi, longest: Callable[[threading.Thread], float], seconds: float) -> Iterator[Figure]:
    happenings: dict[str, Callable[[], object]] = {
        "no event at all": lambda: time.sleep(seconds),
        f"{EVENTS_PER_SECOND:,} events a second": lambda: _events(api, seconds),
        "a new label on every node": lambda: _relabel(api, seconds),
        "a relist of all nodes, each changed": lambda: _expire(api, NODES, seconds),
        "a relist of all pods, each changed": lambda: _expire(api, PODS, 3 * seconds),
    }
    for title, happens in happenings.items():
        pause = longest(threading.Thread(target=happens, daemon=True))
        yield Figure(f"{name}: longest pause during {title}", 1000 * pause, "ms", 100)


def _events(api: LargeApi, seconds: float) -> None:
    """Gives pods their next versions, evenly."""
    names = cycle(Random(2).sample(api.names(PODS), 20_000) if len(api.names(PODS)) > 20_000 else api.names(PODS))
    begin, recorded = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        for name in islice(names, int(passed * EVENTS_PER_SECOND) - recorded):
            api.modify(PODS, name)
            recorded += 1
        time.sleep(_TICK_SECONDS)


def _relabel(api: LargeApi, seconds: float) -> None:
    for name in api.names(NODES):
        api.modify(NODES, name, b'"rank": "', b'"rank": "1')
    time.sleep(seconds)


def _expire(api: LargeApi, path: str, seconds: float) -> None:
    api.expire(path)
    time.sleep(seconds)


class _Backlog:
    """Pods of which no two are alike, as many as the loop does not run out of."""

    def __init__(self, api: LargeApi, size: int) -> None:
        self._api, self._size, self._added = api, size, 0
        self._pods = iter(pods_to_schedule(VARIED, 5 * BACKLOG))

    def longest_pause(self, during: threading.Thread) -> float:
        """Returns the most CPU time without a binding, in seconds."""
        first = len(self._api.bound_at)
        self._top_up()
        asked = time.monotonic()
        while len(self._api.bound_at) == first:
            if time.monotonic() - asked > _BIND_SECONDS:
                raise RuntimeError(f"no pod was bound within {_BIND_SECONDS} s: {first} are, and nodes may be full")
            time.sleep(_TICK_SECONDS)
        begin = self._api.clock()
        during.start()
        while during.is_alive():
            time.sleep(10 * _TICK_SECONDS)
            self._top_up()
        moments = [begin, *(at for at in self._api.bound_at[first:] if at > begin), self._api.clock()]
        return max(later - earlier for earlier, later in pairwise(moments))

    def _top_up(self) -> None:
        while self._added - len(self._api.bound_at) < self._size:
            self._added += 1
            pod = next(self._pods).scheduler(SCHEDULER_NAME).obj()
            self._api.add(PODS, as_served(pod, 2**32 + self._added))


def _longest_call(webhook: Running, nodes: int, during: threading.Thread) -> float:
    """Returns the CPU seconds of the longest call of filter, each for another pod on other nodes."""
    random, longest = Random(3), 0.0
    pods = cycle(pods_to_decide(VARIED, 1000))
    connection = HTTPConnection("127.0.0.1", webhook.port, timeout=60)
    during.start()
    for number in count():
        if not during.is_alive():
            break
        pod = next(pods).obj()
        pod["metadata"] |= {"uid": str(UUID(int=2**96 + number))}
        names = [node_name(row) for row in random.sample(range(nodes), min(_NAMES, nodes))]
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
        begin = _cpu_seconds(webhook)
        connection.request("POST", "/scheduler/filter", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        longest = max(longest, _cpu_seconds(webhook) - begin)
        assert answer.status == 200, text
    return longest
