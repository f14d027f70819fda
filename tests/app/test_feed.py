from __future__ import annotations

import pytest

from extender.app.feed import feed_factory_of
from extender.config.settings import Settings
from extender.errors import ConfigurationError


@pytest.mark.parametrize(
    ("kind", "suggestion"),
    [("csinode", " (did you mean CSINode?)"), ("Deployment", ": expected one of Node, Pod, ")],
    ids=["resembles one", "resembles none"],
)
def test_an_unknown_kind_to_watch_is_refused_with_the_most_similar_one(kind: str, suggestion: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        feed_factory_of(Settings(watch_kinds=(kind,)))
    assert f"watchKinds: unknown kind {kind}{suggestion}" in str(caught.value)
