"""How fast the loop binds: by its settings, or else by the policy's clientConnection."""

from __future__ import annotations

import pytest

from extender.app.schedule import BIND_RATE, bind_bucket
from extender.config.settings import Settings
from extender.plugins.registry import default_profile
from extender.policy.policy import Policy


@pytest.mark.parametrize(
    ("settings", "qps", "burst", "at_once", "pause_seconds"),
    [
        pytest.param({}, 0.0, 0, int(BIND_RATE), 1 / BIND_RATE, id="neither"),
        pytest.param({}, 50.0, 0, 50, 0.02, id="qps of the policy"),
        pytest.param({}, 50.0, 100, 100, 0.02, id="qps and burst of the policy"),
        pytest.param({"bind_rate": 10.0}, 50.0, 100, 100, 0.1, id="the rate of the settings"),
        pytest.param({"bind_rate": 10.0, "bind_burst": 3}, 50.0, 100, 3, 0.1, id="both of the settings"),
    ],
)
def test_bindings_wait_after_a_burst(
    settings: dict[str, float], qps: float, burst: int, at_once: int, pause_seconds: float
) -> None:
    bucket = bind_bucket(Settings.model_validate(settings), Policy((default_profile(),), qps=qps, burst=burst))
    assert [bucket.reserve(0.0) for _ in range(at_once)] == pytest.approx([0.0] * at_once)
    assert bucket.reserve(0.0) == pytest.approx(pause_seconds)
