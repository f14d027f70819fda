"""The order of time limits: none can starve another, and docs/faults.md has the same table."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.app.upkeep import Order, orders, warn
from extender.config.settings import Settings

PAGE = Path(__file__).parents[2] / "docs/faults.md"
ORDERS = orders(Settings())


@pytest.mark.parametrize("order", [pytest.param(each, id=f"{each.shorter}, {each.longer}") for each in ORDERS])
def test_no_limit_can_starve_another(order: Order) -> None:
    assert order.shorter_seconds <= order.longer_seconds, order.reason


def test_the_page_about_faults_has_the_table() -> None:
    text = PAGE.read_text()
    rows = [
        f"| {each.shorter} | {each.shorter_seconds:g} | {each.longer} | {each.longer_seconds:g} | {each.reason} |"
        for each in ORDERS
    ]
    assert [row for row in rows if row not in text] == []


def test_settings_that_break_an_order_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    warn(Settings())
    assert caplog.messages == []
    warn(Settings(settle_seconds=3.0))
    [message] = caplog.messages
    assert "a call: 10 s" in message
    assert "settleSeconds: 3 s" in message
