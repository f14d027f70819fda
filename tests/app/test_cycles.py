"""A scheduling loop is not started with a profile that it would not keep to."""

from __future__ import annotations

import pytest

from extender.app.schedule import Options, cycles_of
from extender.errors import ConfigurationError
from extender.policy.loading import read
from extender.scheduler.extenders import Extenders
from tests.policy.configurations import profile


def test_what_cannot_be_switched_off_is_refused_by_name() -> None:
    policy = read(profile(plugins={"preEnqueue": {"disabled": [{"name": "SchedulingGates"}]}}))
    with pytest.raises(ConfigurationError, match="SchedulingGates cannot be switched off at preEnqueue"):
        cycles_of(policy, Options(), Extenders())
    assert cycles_of(read(profile()), Options(), Extenders()).keys() == {"default-scheduler"}
