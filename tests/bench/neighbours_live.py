"""The rows of `neighbours` on a real API server with `extender schedule`: how long a normal pod waits beside a tenant.

    python -m tests.bench.neighbours_live [--nodes 1000] [--seconds 30] [ROW ...]

A normal pod is created twice a second in a namespace of its own. Its latency is the time from its creation until a list
shows its node, in wall time, and for how much of that time the deciding thread and the whole process had a CPU. The
latter two hold on a busy machine, too.
"""

from __future__ import annotations

import tempfile
import threading
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.neighbours import TENANTS, _cluster
from tests.builders import Builder, Object, make_namespace, make_pod
from tests.end_to_end.group_plane import TREE_FLAGS, GroupControlPlane
from tests.running import schedule
from tests.stock.build import build

PAUSE_SECONDS = 0.5


def built(each: Builder | Object) -> Object:
    obj: dict[str, Any] = each.obj() if isinstance(each, Builder) else each
    obj["metadata"].pop("uid", None)
    return obj


class Moment(NamedTuple):
    """Seconds by three clocks: wall time, the CPU time of the deciding thread, and that of the whole process."""

    wall: float
    deciding: float
    process: float

    def since(self, earlier: Moment) -> Moment:
        return Moment(*(now - then for now, then in zip(self, earlier, strict=True)))


class Neighbour:
    """Creates normal pods, and notes when each has its node."""

    def __init__(self, plane: GroupControlPlane, pid: int) -> None:
        self._client = plane.client
        self._pid = pid
        self.created: dict[str, Moment] = {}
        self.waited: dict[str, Moment] = {}

    def add(self) -> None:
        name = f"normal-{len(self.created)}"
        self.created[name] = self._now()
        self._client.create(built(make_pod(name, "shop").req(cpu="1m")))

    def look(self) -> None:
        now = self._now()
        for pod in self._client.list("Pod", "shop"):
            if pod["spec"].get("nodeName"):
                self.waited.setdefault(pod["metadata"]["name"], now.since(self.created[pod["metadata"]["name"]]))

    def latencies(self, names: list[str]) -> list[Moment]:
        now = self._now()
        return [self.waited.get(name) or now.since(self.created[name]) for name in names]

    def _now(self) -> Moment:
        """The first thread of the process decides."""
        threads = [int(path.read_text().split()[0]) for path in Path(f"/proc/{self._pid}/task").glob("*/schedstat")]
        deciding = int(Path(f"/proc/{self._pid}/task/{self._pid}/schedstat").read_text().split()[0])
        return Moment(time.monotonic(), deciding / 1e9, sum(threads) / 1e9)

    def go_on(self, seconds: float) -> list[Moment]:
        """Lets normal pods arrive for so long; returns their latencies."""
        before, ends_at = len(self.created), time.monotonic() + seconds
        due = time.monotonic()
        while time.monotonic() < ends_at:
            if time.monotonic() >= due:
                self.add()
                due += PAUSE_SECONDS
            self.look()
            time.sleep(0.01)
        self.look()
        return self.latencies(list(self.created)[before:])


def measure(row: str, nodes: int, seconds: float) -> str:
    with tempfile.TemporaryDirectory() as directory, GroupControlPlane(build(), Path(directory) / "plane") as plane:
        plane.client.create(*(make_namespace(name) for name in ("shop", "tenant")))
        plane.client.create(*map(built, _cluster(nodes, 8 if "CEL" in row else 0)))
        with schedule(plane.kubeconfig, Path(directory), *TREE_FLAGS, timeout_seconds=120) as scheduler:
            neighbour = Neighbour(plane, scheduler.process.pid)
            before = neighbour.go_on(5)
            tenant = threading.Thread(target=lambda: plane.client.create(*map(built, TENANTS[row](1.0))), daemon=True)
            tenant.start()
            during = neighbour.go_on(seconds)
            unbound = len(neighbour.created) - len(neighbour.waited)
            assert scheduler.ready()
    worst = max(during)
    deciding, process = 1e3 * max(each.deciding for each in during), 1e3 * max(each.process for each in during)
    times = f"before {1e3 * max(before[3:]).wall:.0f} ms, worst {1e3 * worst.wall:.0f} ms"
    times += f" (of CPU time at worst {deciding:.0f} ms of the deciding thread, {process:.0f} ms of the process)"
    return f"{row}: {times}, {unbound} of {len(during)} not bound"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("row", nargs="*", help="parts of the names of rows; all by default")
    options = parser.parse_args()
    for row in TENANTS:
        if not options.row or any(part in row for part in options.row):
            print(measure(row, options.nodes, options.seconds), flush=True)


if __name__ == "__main__":
    main()
