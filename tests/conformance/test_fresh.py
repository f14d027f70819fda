"""Cases that nobody has seen, against the stock scheduler's own plugins.

CONFORMANCE_SEED=N draws the same cases again; CONFORMANCE_CASES=N as many of each kind.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.builders import Object
from tests.conformance.answered import answered, ask, kept
from tests.conformance.cases import KINDS, named
from tests.conformance.deciding import disagreements
from tests.conformance.reduction import reduced
from tests.stock.build import Binaries
from tests.stock.oracle import Oracle

pytestmark = pytest.mark.stock

SEED = int(os.environ.get("CONFORMANCE_SEED") or secrets.randbelow(10**9))
OF_A_KIND = int(os.environ.get("CONFORMANCE_CASES") or 30)


@pytest.fixture(scope="module")
def brief_oracle(stock_binaries: Binaries) -> Iterator[Oracle]:
    """It does not run every plugin by itself: that takes most of an answer's time."""
    with Oracle(stock_binaries["oracle"], "--individually=false") as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_cases(kind: str, brief_oracle: Oracle) -> None:
    """What fails is shown as small as it can be: keep it in `cases`, and say in `about` what it is about."""
    print(f"CONFORMANCE_SEED={SEED} CONFORMANCE_CASES={OF_A_KIND}")

    def causes(case: Object) -> dict[str, str]:
        return {found.cause: str(found) for found in disagreements(case, ask(brief_oracle, case))}

    for case in named(kind, OF_A_KIND, SEED):
        cause = next(iter(causes(case)), None)
        if cause is not None:
            small = _smallest(case, cause, causes)
            told = json.dumps({**small, "stock": ask(brief_oracle, small)}, indent=1)
            pytest.fail(f"{case['name']} of seed {SEED}: {causes(small)[cause]}\n{told}")


def _smallest(case: Object, cause: str, causes: Callable[[Object], Mapping[str, str]]) -> Object:
    return reduced(case, lambda part: cause in causes(part))


def test_the_kept_answers_are_still_the_oracles(brief_oracle: Oracle) -> None:
    some = (case for number, case in enumerate(answered()) if number % 10 == 0)
    stale = [case["name"] for case in (*kept(), *some) if not _same(ask(brief_oracle, case), case["stock"])]
    assert not stale, "make them anew: python -m tests.conformance.answered"


def _same(new: Object, kept: Object) -> bool:
    """Whether two answers say the same: among equals, preemption takes any node and any order."""
    return _settled(new) == _settled(kept)


def _settled(answer: Object) -> Object:
    told = {key: value for key, value in answer.items() if key not in ("nominated", "name")}
    for victims in told.get("candidates", {}).values():
        victims["pods"].sort()
    for status in (*told.get("filter", {}).values(), told.get("prefilter", {})):
        status.get("reasons", []).sort()
    return told
