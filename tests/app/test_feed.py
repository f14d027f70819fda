from __future__ import annotations

import pytest

from extender.app.feed import feed_factory_of
from extender.config.settings import Settings
from extender.errors import ConfigurationError


@pytest.mark.parametrize(
    ("kind", "told"),
    [("csinode", " (did you mean CSINode?)"), ("Deployment", ": want one of Node, Pod, ")],
    ids=["resembles one", "resembles none"],
)
def test_a_kind_to_watch_that_nobody_knows_is_refused_with_the_nearest(kind: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        feed_factory_of(Settings(watch_kinds=(kind,)))
    assert f"watchKinds: {kind} is no kind that rules read{told}" in str(caught.value)
