"""Random configurations on random clusters, against the stock scheduler's own plugins."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from extender import Cluster
from extender.errors import ConfigurationError
from extender.framework.profile import Profiles
from extender.policy.loading import read
from tests.builders import Object
from tests.conformance.cases import KINDS, cases
from tests.conformance.draft import Dice
from tests.conformance.judge import differences
from tests.conformance.stock import ask
from tests.conformance.uniform import BACKEND
from tests.policy.configurations import configuration
from tests.stock.build import Binaries
from tests.stock.oracle import Oracle

pytestmark = pytest.mark.stock

OF_A_KIND = 20


@pytest.fixture(scope="module")
def brief_oracle(stock_binaries: Binaries) -> Iterator[Oracle]:
    """It does not run every plugin by itself: that takes most of an answer's time."""
    with Oracle(stock_binaries["oracle"], "--individually=false") as running:
        yield running


@st.composite
def configured_cases(draw: st.DrawFn, kind: str) -> Object:
    return {**draw(cases(kind)), "config": configuration(Dice(draw))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_decides_as_it_does_in_kube_scheduler(kind: str, brief_oracle: Oracle) -> None:
    @settings(
        max_examples=OF_A_KIND,
        phases=[Phase.generate, Phase.shrink],
        database=None,
        deadline=None,
        backend=BACKEND,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=configured_cases(kind))
    def check(case: Object) -> None:
        stock = ask(brief_oracle, case)
        try:
            policy = read(case["config"])
        except ConfigurationError as error:
            # Of those that stock starts with, only such are refused here as let it fail on pods.
            assert "requires its" in str(error)
            return
        if "error" not in stock:
            decision = Cluster.from_objects(case["cluster"]["items"], Profiles(policy.profiles)).decide(case["pod"])
            # What a rule's numbers are before they are normalised is its own affair where the node does not count.
            found = [each for each in differences(case, stock, decision) if not each.subject.startswith("raw")]
            assert not found, f"{'; '.join(map(str, found))}\n{json.dumps({**case, 'stock': stock})}"

    check()
