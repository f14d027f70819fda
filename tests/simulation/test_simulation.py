"""Lives of the simulated cluster: `SEEDS=5000 pytest tests/simulation`, or only `SEED=17 pytest tests/simulation`.

They run in processes of their own, for what is drawn from sets depends on a hash that is fixed only as Python starts.
"""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.simulation.broken import BROKEN

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("SEEDS", "50"))
PROCESSES = min(os.cpu_count() or 1, 8)
ONE = os.environ.get("SEED", "")
FORMS = [
    pytest.param((), id="extenders under a scheduler"),
    pytest.param(("--best",), id="extenders that choose, under a scheduler"),
    pytest.param(("--own",), id="our own scheduler"),
]


def begun(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def simulation(*arguments: str) -> tuple[int, str]:
    """The exit status, and what was printed."""
    process = begun(*arguments)
    printed, _ = process.communicate()
    return process.returncode, printed


@pytest.mark.slow
@pytest.mark.timeout(600 + SEEDS * 10)
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_lost_in_any_life_of_a_cluster(form: tuple[str, ...]) -> None:
    """Lives the seeds up to SEEDS, or only SEED, in several processes."""
    cuts = [SEEDS * number // PROCESSES for number in range(PROCESSES + 1)]
    spans = [(ONE,)] if ONE else [(str(first), str(last)) for first, last in pairwise(cuts)]
    processes = [begun(*form, *span) for span in spans]
    printed = [process.communicate()[0] for process in processes]
    print(*printed)
    assert not any(process.returncode for process in processes), "\n".join(printed)


@pytest.mark.parametrize("form", FORMS)
def test_a_seed_happens_alike_every_time_and_nothing_is_lost(form: tuple[str, ...]) -> None:
    processes = [begun(*form, seed) for seed in ("3", "3", "4")]
    first, again, other = (process.communicate()[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0, 0], first + other
    assert "Outcome" in first
    assert again == first != other


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_part_overrides_only_methods_that_exist(fault: str) -> None:
    for path, part in BROKEN[fault].stand_ins.items():
        sound = pkgutil.resolve_name(path)
        if not isinstance(part, type) or not isinstance(sound, type) or not issubclass(part, sound):
            continue
        own = {name for name, value in vars(part).items() if callable(value)}
        assert own <= set(dir(sound)), f"{part.__name__} overrides {own - set(dir(sound))}, which {path} lacks"


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
def test_what_is_broken_is_found(fault: str) -> None:
    status, printed = simulation("--broken", fault, "0", "200")  # it ends with the first life that finds it
    assert status == 1, printed
    assert "again, with all that happens" in printed
