"""An error about one object at every call of a part: the process lives, and the other pods are scheduled.

`make test` tries some functions, `make test-injection` all of them (INJECTIONS=all).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from tests.scheduler.poisoned_objects import PoisonedCalls, run

pytestmark = pytest.mark.thorough

SHARDS = 4
INJECTIONS = os.environ.get("INJECTIONS", "16")
SEED = int(os.environ.get("SEED", "1"))
# These raise before anything could know which object they are about; they contain no code that depends on the object.
NOT_POISONED = ("cache.cache.Cache.changed", "cache.observed.id_of")


@pytest.fixture(scope="module")
def calls() -> Iterator[PoisonedCalls]:
    calls = PoisonedCalls()
    with calls.wrapped():
        yield calls


@pytest.fixture(scope="module")
def functions(calls: PoisonedCalls) -> list[str]:
    assert run(calls, None) == []
    names = sorted(calls.counts.keys() - set(NOT_POISONED))
    Random(SEED).shuffle(names)
    return names if INJECTIONS == "all" else names[: int(INJECTIONS)]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_an_object_that_fails_everywhere_holds_up_no_other(
    calls: PoisonedCalls, functions: list[str], shard: int
) -> None:
    faults: dict[str, list[str]] = {}
    for function in functions[shard::SHARDS]:
        if found := run(calls, function):
            faults[function] = found
        assert calls.counts[function], function
    assert faults == {}
