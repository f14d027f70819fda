"""How long a pod waits for the rules of Permit."""

from __future__ import annotations

from threading import Lock

from extender.framework.permit import Permit
from extender.model.node import Node
from tests.builders import make_pod
from tests.framework.cluster import pod_info


def test_the_timeout_of_a_permit_is_the_shortest_of_the_rules_that_are_left() -> None:
    permit = Permit(pod_info(make_pod("p").obj()).pod, Node(), (), Lock(), {"slow": 9.0, "quick": 3.0})
    timeouts = [permit.timeout_seconds]
    for rule in ("quick", "slow"):
        permit.allow(rule)
        timeouts.append(permit.timeout_seconds)
    assert timeouts == [3.0, 9.0, 0.0]
