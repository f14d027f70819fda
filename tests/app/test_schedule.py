"""How fast the loop binds: as the policy's clientConnection says."""

from __future__ import annotations

import pytest

from extender.app.schedule import BIND_RATE, bind_bucket
from extender.plugins.registry import default_profile
from extender.policy.policy import Policy


@pytest.mark.parametrize(
    ("qps", "burst", "at_once", "pause_seconds"),
    [
        pytest.param(0.0, 0, int(BIND_RATE), 1 / BIND_RATE, id="neither"),
        pytest.param(50.0, 0, 50, 0.02, id="qps of the policy"),
        pytest.param(50.0, 100, 100, 0.02, id="qps and burst of the policy"),
    ],
)
def test_bindings_wait_after_a_burst(qps: float, burst: int, at_once: int, pause_seconds: float) -> None:
    bucket = bind_bucket(Policy((default_profile(),), qps=qps, burst=burst))
    assert [bucket.reserve(0.0) for _ in range(at_once)] == pytest.approx([0.0] * at_once)
    assert bucket.reserve(0.0) == pytest.approx(pause_seconds)
