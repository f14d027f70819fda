"""Some hundred random clusters, always the same ones; `make fuzz-answers` draws others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.answers.checks import faults
from tests.answers.clusters import CHUNK, drawn
from tests.conformance.deciding import disagreements
from tests.conformance.stock import BRIEFLY, ask
from tests.stock.build import Binaries
from tests.stock.oracle import Oracle

pytestmark = pytest.mark.slow

SEED = 20261125
CHUNKS = 4
ASKED = 25


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_answer_holds(chunk: int) -> None:
    """A failing cluster is shown as small as it can be by `make fuzz-answers ARGS='--seed SEED --only NUMBER'`."""
    found = {case["name"]: wrong for case in drawn(SEED, chunk) if (wrong := faults(case))}
    assert found == {}


def test_a_cluster_is_the_same_each_time_it_is_drawn() -> None:
    assert drawn(SEED, 1) == drawn(SEED, 1)
    assert len(drawn(SEED, 1)) == CHUNK


@pytest.mark.stock
def test_the_oracle_agrees(brief_oracle: Oracle) -> None:
    judged = [case for case in drawn(SEED, CHUNKS) if not case.pop("odd")]
    for case in judged[:ASKED]:
        assert disagreements(case, ask(brief_oracle, case)) == [], case["name"]


@pytest.fixture(scope="module")
def brief_oracle(stock_binaries: Binaries) -> Iterator[Oracle]:
    with Oracle(stock_binaries["oracle"], BRIEFLY) as running:
        yield running
