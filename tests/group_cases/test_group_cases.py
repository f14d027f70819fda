"""Kubernetes' integration cases of pod groups, played by the loop on a real API server.

`make test-group-cases` plays all of them, or with `CASES=text` those whose names contain the text, such as those of
1.38 with `CASES=[1.38`; otherwise a few are played.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.group_plane import clean_up
from tests.group_cases.cases import Case, all_cases
from tests.group_cases.stage import CasePlane, Stage, Witness, policy_of
from tests.running import RunningScheduler, schedule
from tests.stock.build import Binaries

pytestmark = [pytest.mark.stock, pytest.mark.slow]
CASES = {case.id: case for case in all_cases()}
GATES = "[1.37+GenericWorkload+TopologyAwareWorkloadScheduling]"
FEW = (
    f"TestPodGroupScheduling: gang waits for pod group, then for resources, then schedules {GATES}",
    f"TestPodGroupPreemption: Full PodGroup Preemption {GATES}",
    f"TestPodGroupPreemption: Preempt the whole PodGroup even if preempting a single Pod would suffice {GATES}",
)
WANTED = os.environ.get("GROUP_CASES")
CHOSEN = FEW if WANTED is None else tuple(name for name in CASES if WANTED in name)


class Loops:
    """Keeps the loop running from one case to the next that has the same gates and no rules."""

    def __init__(self, plane: CasePlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._running = ExitStack()
        self._flags: list[str] = []
        self._loop: RunningScheduler | None = None

    def loop_of(self, case: Case, folder: Path) -> RunningScheduler:
        flags = ["--kubernetes-version", case.version]
        flags += ["--feature-gates", ",".join(f"{gate}=true" for gate in case.gates)]
        if self._loop is None or case.needs_rules or self._flags != flags:
            self.stop()
            policy = str(policy_of(case, folder))
            self._loop = self._running.enter_context(
                schedule(self._plane.kubeconfig, folder, *flags, "--policy", policy)
            )
            self._flags = [] if case.needs_rules else flags
        return self._loop

    def stop(self) -> None:
        self._running.close()
        self._loop = None


@pytest.fixture(scope="module")
def plane(stock_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CasePlane]:
    with CasePlane(stock_binaries, tmp_path_factory.mktemp("cases")) as running:
        yield running


@pytest.fixture(scope="module")
def witness(plane: CasePlane) -> Witness:
    return Witness(plane)


@pytest.fixture(scope="module")
def loops(plane: CasePlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loops]:
    kept = Loops(plane, tmp_path_factory.mktemp("loops"))
    yield kept
    kept.stop()


@pytest.mark.parametrize("name", CHOSEN)
def test_the_loop_plays_the_case(name: str, plane: CasePlane, witness: Witness, loops: Loops, tmp_path: Path) -> None:
    case = CASES[name]
    clean_up(plane)
    loop = loops.loop_of(case, tmp_path)
    Stage(plane, loop, witness, tmp_path).play(case)
