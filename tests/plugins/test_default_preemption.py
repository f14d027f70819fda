"""DefaultPreemption: who waits for victims is woken by the rules that refused it."""

from __future__ import annotations

from tests.builders import PodBuilder, make_pod
from tests.plugins.hint_case import pod_change_helps


def other(**labels: str) -> PodBuilder:
    return make_pod("other").node("n1").label(**labels)


def test_preemption_leaves_it_to_the_others() -> None:
    assert not pod_change_helps("DefaultPreemption", make_pod("p"), other(), None)
