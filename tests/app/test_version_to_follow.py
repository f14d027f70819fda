"""A process follows the version of its settings, else of its policy, else of its API server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from extender.app.live_lookups import version_to_follow
from extender.config.settings import Settings
from extender.policy.loading import read
from extender.table.features import RELEASED
from tests.cluster.fake_api import fake_api
from tests.policy.configurations import profile

WITHOUT, OF_1_36 = read(profile()), read({**profile(), "kubernetesVersion": "1.36"})


@pytest.mark.parametrize(
    ("reported", "followed", "warned"),
    [
        pytest.param("v1.38.1", "1.38", False, id="a known version"),
        pytest.param("v1.44.0", "1.38", True, id="a newer version"),
        pytest.param(None, RELEASED, False, id="not served"),
    ],
)
def test_the_api_server_is_asked(
    reported: str | None, followed: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_api() as api, caplog.at_level(logging.WARNING):
        if reported is not None:
            api.fail("/version", lambda call: call.json(200, {"gitVersion": reported}))
        settings = version_to_follow(Settings(kubeconfig=api.kubeconfig(tmp_path)), WITHOUT)
    assert settings.kubernetes_version == followed
    assert any("kubernetes version" in record.message for record in caplog.records) is warned


def test_a_chosen_version_is_not_asked_for() -> None:
    unreachable = Settings(kubeconfig=Path("no-such-file"))
    assert version_to_follow(unreachable, OF_1_36).kubernetes_version == "1.36"
    chosen = unreachable.model_copy(update={"kubernetes_version": "1.38"})
    assert version_to_follow(chosen, OF_1_36).kubernetes_version == "1.38"


def test_a_cluster_in_a_file_is_not_asked(tmp_path: Path) -> None:
    assert version_to_follow(Settings(cluster=tmp_path), WITHOUT).kubernetes_version == RELEASED
