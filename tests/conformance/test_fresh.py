"""New cases, against the stock scheduler's own plugins.

CONFORMANCE_SEED=N draws other cases; CONFORMANCE_CASES=N as many of each kind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache

import pytest

from tests.builders import Object
from tests.conformance.answered import answered, kept
from tests.conformance.cases import KINDS, kind_of, named
from tests.conformance.deciding import disagreements
from tests.conformance.reduction import reduced
from tests.conformance.stock import BRIEFLY, ask, gates, same
from tests.stock.build import Binaries
from tests.stock.oracle import Oracle

pytestmark = pytest.mark.stock

SEED = int(os.environ.get("CONFORMANCE_SEED") or 1)
OF_A_KIND = int(os.environ.get("CONFORMANCE_CASES") or 30)
CHANCES = 20
OracleWith = Callable[..., Oracle]


@pytest.fixture(scope="module")
def oracle_with(stock_binaries: Binaries) -> Iterator[OracleWith]:
    """Returns the oracle that has these flags; it is started once and runs until the last test of the module."""
    with ExitStack() as stack:

        @cache
        def started(*flags: str) -> Oracle:
            return stack.enter_context(Oracle(stock_binaries["oracle"], BRIEFLY, *flags))

        yield started


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_cases(kind: str, oracle_with: OracleWith) -> None:
    """A failing case is shown as small as it can be: keep it in `cases`, and say in `about` what it is about."""
    print(f"CONFORMANCE_SEED={SEED} CONFORMANCE_CASES={OF_A_KIND}")
    cases = named(kind, OF_A_KIND, SEED)
    assert len(cases) == OF_A_KIND
    _compare(cases, oracle_with(*gates(kind)))


def _compare(cases: Sequence[Object], oracle: Oracle) -> None:
    answers = [ask(oracle, case) for case in cases]
    assert sum("error" in answer for answer in answers) < OF_A_KIND / 2  # then stock would agree with anything
    for case, answer in zip(cases, answers, strict=True):
        cause = next(iter(_causes(oracle, case)), None) if disagreements(case, answer) else None
        if cause is not None:
            small = _smallest(oracle, case, cause)
            recorded = json.dumps({**small, "stock": ask(oracle, small)}, indent=1)
            pytest.fail(f"{case['name']} of seed {SEED}: {_causes(oracle, small)[cause]}\n{recorded}")


def _causes(oracle: Oracle, case: Object) -> dict[str, str]:
    """Returns why we disagree; of several volumes that would do stock takes any, so ours may be one of a later try."""
    found = disagreements(case, ask(oracle, case))
    if found and any(not disagreements(case, ask(oracle, case)) for _ in range(CHANCES)):
        return {}
    return {difference.cause: str(difference) for difference in found}


def _smallest(oracle: Oracle, case: Object, cause: str) -> Object:
    return reduced(case, lambda part: cause in _causes(oracle, part))


def test_the_kept_answers_are_still_the_oracles(oracle_with: OracleWith) -> None:
    some = [case for number, case in enumerate(answered()) if number % 10 == 0]
    stale = [
        case["name"]
        for case in (*kept(), *some)
        if not same(ask(oracle_with(*gates(kind_of(case))), case), case["stock"])
    ]
    assert not stale, "record them again: python -m tests.conformance.answered"
