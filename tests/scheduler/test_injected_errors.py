"""An error at any call of the loop's parts heals, or ends the process: no pod and no place is lost.

INJECTIONS sets how many calls are drawn, SEED which; INJECTIONS=all tries the first and the last call, and two drawn
ones, of every function (`make test-injection`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from tests.scheduler.injected_errors import Calls, Injection, run

pytestmark = pytest.mark.thorough

SHARDS = 8
INJECTIONS = os.environ.get("INJECTIONS", "24")
SEED = int(os.environ.get("SEED", "1"))


@pytest.fixture(scope="module")
def calls() -> Iterator[Calls]:
    calls = Calls()
    with calls.wrapped():
        yield calls


@pytest.fixture(scope="module")
def injections(calls: Calls) -> list[Injection]:
    assert run(calls, None) == []
    every = sorted(_injections(calls.counts), key=str)
    Random(SEED).shuffle(every)
    return every if INJECTIONS == "all" else every[: int(INJECTIONS)]


def _injections(counts: Mapping[str, int]) -> Iterator[Injection]:
    for name, count in counts.items():
        random = Random(f"{SEED} {name}")
        for number in {1, count, random.randint(1, count), random.randint(1, count)}:
            yield Injection(name, number, after=False)
            yield Injection(name, number, after=True)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_an_error_at_any_call_loses_no_pod_and_no_place(calls: Calls, injections: list[Injection], shard: int) -> None:
    faults: dict[str, list[str]] = {}
    for injection in injections[shard::SHARDS]:
        if found := run(calls, injection):
            faults[str(injection)] = found
        assert calls.struck, injection
    assert faults == {}
