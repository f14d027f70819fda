"""The limits of preemption: percentage, absolute number, offset."""

from __future__ import annotations

import pytest

from extender.framework.profile import CandidateLimits
from tests.preemption.clusters import budget, node, preempted, preemptor, victim

NAMES = [f"n{i}" for i in range(10)]
NODES = [node(name).obj() for name in NAMES]
PODS = [victim(f"on-{name}", name, "4").obj() for name in NAMES]
HOPELESS = [victim(f"on-{name}", name, "4", 100).obj() for name in NAMES[:3]]
PROTECTED = [victim(f"on-{name}", name, "4", app="web").obj() for name in NAMES[:3]]


@pytest.mark.parametrize(
    ("limits", "nodes", "enough"),
    [
        pytest.param(CandidateLimits(), 50, 50, id="never more than there are"),
        pytest.param(CandidateLimits(), 500, 100, id="the absolute number at least"),
        pytest.param(CandidateLimits(), 5000, 500, id="the percentage if that is more"),
        pytest.param(CandidateLimits(0, 1), 5000, 1, id="one"),
        pytest.param(CandidateLimits(), 0, 0, id="no nodes"),
    ],
)
def test_the_number_of_candidates_that_is_enough(limits: CandidateLimits, nodes: int, enough: int) -> None:
    assert limits.enough(nodes) == enough


@pytest.mark.parametrize(
    ("objects", "offset", "expected"),
    [
        pytest.param(PODS, 0, ["n0", "n1"], id="the first two"),
        pytest.param(PODS, 9, ["n0", "n9"], id="from the offset round to the beginning"),
        pytest.param([*HOPELESS, *PODS[3:]], 0, ["n3", "n4", "n5"], id="past hopeless nodes"),
        pytest.param(
            [*PROTECTED, *PODS[3:], budget("pdb", 0, {"app": "web"})],
            0,
            ["n0", "n1", "n2", "n3"],
            id="on to one that violates nothing",
        ),
        pytest.param(
            [*PROTECTED, *HOPELESS[:0], budget("pdb", 0, {"app": "web"})]
            + [victim(f"on-{name}", name, "4", 100).obj() for name in NAMES[3:]],
            0,
            ["n0", "n1", "n2"],
            id="all there are if each violates something",
        ),
    ],
)
def test_the_search_ends_at_enough_candidates(
    objects: list[dict[str, object]], offset: int, expected: list[str]
) -> None:
    preemption = preempted(preemptor(), *NODES, *objects, limits=CandidateLimits(20, 0), offset=offset)
    assert sorted(preemption.candidates) == expected
    assert preemption.nominated_node in expected
