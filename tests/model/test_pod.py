"""The taints that a toleration covers."""

from __future__ import annotations

import pytest

from extender.model.node import NO_EXECUTE, NO_SCHEDULE, Taint, tolerates, untolerated
from extender.model.pod import Toleration

TAINT = Taint(key="gpu", value="a", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration(key="gpu", operator="Equal", value="a", effect="NoSchedule"), True, id="equal"),
        pytest.param(Toleration(key="gpu", value="a"), True, id="no operator is Equal, no effect is every effect"),
        pytest.param(Toleration(key="gpu", operator="Equal", value="b"), False, id="another value"),
        pytest.param(Toleration(key="gpu", operator="Exists"), True, id="exists"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key="disk", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration(key="gpu", operator="Gt", value="a"), False, id="an operator that is off by default"),
    ],
)
def test_tolerates(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_only_the_given_effects_count() -> None:
    soft = Taint(key="slow", effect="PreferNoSchedule")
    assert untolerated([soft, TAINT], [], (NO_SCHEDULE, NO_EXECUTE)) == [TAINT]
