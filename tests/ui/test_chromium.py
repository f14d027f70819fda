"""Without a browser the tests of the page fail, and say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui.chromium import ChromiumMissingError, chromium


def test_the_error_of_a_missing_browser_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ChromiumMissingError, match=r"put both on the PATH .*-m 'not browser'.*apt-get"):
        chromium()
    assert not (tmp_path / "extender-chromium/root").exists()


def test_a_browser_on_the_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chromium", "chromedriver"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = chromium()
    assert (found.browser, found.driver, found.libraries) == (tmp_path / "chromium", tmp_path / "chromedriver", ())
