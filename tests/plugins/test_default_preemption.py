"""DefaultPreemption: a pod that waits for its victims is woken by the rules that refused it."""

from __future__ import annotations

from tests.builders import PodBuilder, make_pod
from tests.plugins.hint_case import pod_change_helps


def other(**labels: str) -> PodBuilder:
    return make_pod("other").node("n1").label(**labels)


def test_default_preemption_wakes_no_pod() -> None:
    assert not pod_change_helps("DefaultPreemption", make_pod("p"), other(), None)
