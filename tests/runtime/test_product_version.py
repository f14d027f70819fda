"""What the build writes about itself, and what is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.runtime import process
from extender.runtime.process import product_commit


@pytest.mark.parametrize(
    ("written", "commit"),
    [
        pytest.param("g1a2b3c4d5", "1a2b3c4d5", id="a build from a checkout"),
        pytest.param("None", "unknown", id="a build from an archive"),
        pytest.param(None, "unknown", id="not built"),
    ],
)
def test_the_commit_is_the_one_that_was_built(
    written: str | None, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime").mkdir()
    if written:
        (tmp_path / "runtime/commit.txt").write_text(written)
    monkeypatch.setattr(process, "files", lambda package: tmp_path)
    assert product_commit() == commit
