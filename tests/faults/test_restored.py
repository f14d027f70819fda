"""A real etcd is restored from a copy under a scheduler: what it has forgotten holds no room, what is back takes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import make_node, make_pod
from tests.end_to_end.workload import violations
from tests.faults.agreement import PODS_KNOWN
from tests.running import schedule
from tests.stock.build import Binaries
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.timeout(300), pytest.mark.slow]

ROOM = {"cpu": "4", "memory": "16Gi", "pods": "110"}
PATIENCE_SECONDS = 90.0


class RestorablePlane(ControlPlane):
    """A control plane whose etcd can be copied, and put back to what it was then."""

    def copy(self) -> None:
        """Copies what there is, with everything stopped."""
        self.stop()
        [data] = self.directory.glob("etcd-*")
        shutil.copytree(data, self.directory / "copy")
        self.start_again()

    def restore(self) -> None:
        """Goes back to the copy: all versions since are given again, for other things."""
        for process in self.processes:
            process.kill()
        [data] = self.directory.glob("etcd-*")
        shutil.rmtree(data)
        shutil.copytree(self.directory / "copy", data)
        self.start_again()


@pytest.fixture
def plane(stock_binaries: Binaries, tmp_path: Path) -> Iterator[RestorablePlane]:
    with RestorablePlane(stock_binaries, tmp_path / "plane") as plane:
        yield plane


def test_pods_that_a_restored_server_lost_take_no_room_and_restored_ones_do(
    plane: RestorablePlane, tmp_path: Path
) -> None:
    def create(name: str, number: int) -> None:
        plane.client.create(*(make_pod(f"{name}-{i}").req(cpu="1").obj() for i in range(number)))

    def bound() -> list[str]:
        pods = plane.client.list("Pod", "default")
        assert violations(plane.client.list("Node"), pods) == []
        return sorted(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))

    plane.client.create(*(make_node(name).capacity(ROOM).obj() for name in ("n1", "n2")))
    with schedule(plane.kubeconfig, tmp_path) as scheduler:
        create("before", 3)
        assert wait_until(lambda: len(bound()) == 3)
        plane.copy()
        plane.client.delete("Pod", "before-0")
        create("forgotten", 6)
        assert wait_until(lambda: len(bound()) == 8, PATIENCE_SECONDS)
        plane.restore()
        assert wait_until(lambda: scheduler.metric(PODS_KNOWN) == 3, PATIENCE_SECONDS)
        create("after", 6)
        assert wait_until(lambda: len(bound()) == 8, PATIENCE_SECONDS)
        assert [name for name in bound() if not name.startswith("after")] == ["before-0", "before-1", "before-2"]
        assert "Traceback" not in scheduler.process.log.read_text()
