"""Moves of an experiment: a pod leaves its devices for another node, so that a waiting pod gets room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from extender.devices.device_nodes import DeviceAsk, DeviceNodes
from extender.devices.policies import DeviceChooser, FirstFit, Weighted
from extender.offline.experiment.evictions import DeviceMoves, PlacedPod

SMALL = DeviceAsk(cpu=1, milli=300, count=1)
LARGE = DeviceAsk(cpu=1, milli=700, count=1)
WHOLE = DeviceAsk(cpu=1, milli=1000, count=1)


class Cluster:
    """Nodes with one device each; `pods` are the asks on each node."""

    def __init__(self, *pods: Sequence[DeviceAsk], waiting: Sequence[DeviceAsk]) -> None:
        count = len(pods)
        everywhere = np.full(count, 4)
        self.nodes = DeviceNodes.empty(np.array(["T4"] * count), everywhere, everywhere, np.ones(count, np.int64))
        chooser = DeviceChooser(self.nodes, [Weighted(FirstFit())])
        placed = []
        for row, asks in enumerate(pods):
            for ask in asks:
                choice = chooser.choose(ask, only=row)
                assert choice is not None
                chooser.change(choice, ask)
                placed.append(PlacedPod(ask, choice))
        self.moves = DeviceMoves(chooser, placed, waiting)

    def after(self, most: int) -> tuple[int, list[int]]:
        """Returns the number of moves, and the free thousandths of every node."""
        for _ in self.moves.steps(most):
            pass
        return self.moves.moves, self.nodes.free[:, 0].tolist()


def test_a_share_moves_to_another_device_in_use() -> None:
    assert Cluster([SMALL], [SMALL], waiting=[WHOLE]).after(5) == (1, [0, 400])


def test_nothing_moves_that_fits_nowhere_else() -> None:
    assert Cluster([LARGE], [LARGE], waiting=[WHOLE]).after(5) == (0, [300, 300])


def test_the_step_with_the_most_devices_for_each_move_comes_first() -> None:
    """Two moves make room for a whole device; one move makes room for 700 thousandths."""
    cluster = Cluster([SMALL, SMALL], [SMALL, SMALL], [LARGE], waiting=[LARGE, WHOLE])
    assert next(cluster.moves.steps(5)) == 1
    assert cluster.moves.waiting[WHOLE] == 1


def test_no_step_needs_more_moves_than_are_left() -> None:
    cluster = Cluster([SMALL, SMALL], [LARGE], [LARGE], waiting=[WHOLE])
    assert cluster.after(1) == (0, [400, 300, 300])
    assert cluster.after(2) == (2, [0, 0, 0])


def test_a_waiting_pod_that_fits_after_a_move_is_placed() -> None:
    """The whole device gets node a; the pod that leaves it leaves room for no other, but node c has some."""
    cluster = Cluster([SMALL], [LARGE], [], waiting=[WHOLE, SMALL, WHOLE])
    assert cluster.after(5) == (1, [0, 0, 0])
    assert cluster.moves.waiting.total() == 1


def test_pods_move_only_to_models_that_they_can_use() -> None:
    other = DeviceAsk(cpu=1, milli=300, count=1, models=frozenset({"A10"}))
    cluster = Cluster([SMALL], [LARGE], waiting=[DeviceAsk(1, 0, 1000, 1, frozenset({"A10"})), other])
    assert cluster.after(5) == (0, [700, 300])
