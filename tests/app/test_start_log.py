"""The line of a start says by what is decided, where it listens, and what it does not do."""

from __future__ import annotations

import io
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from extender.app.live_lookups import log_start
from extender.config.settings import Command, Settings
from extender.plugins.registry import default_profile
from extender.policy.library import Library
from extender.policy.loading import load
from extender.table.features import DEFAULT_FEATURES
from extender.web import log

RULE = """
from extender import predicate, reserve

@predicate
def own(pod, node):
    return None

@reserve(woken_by={"StatefulSet": "Add"})
def taken(pod, node):
    return None
"""
POLICY = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
featureGates: {VolumeLimitScaling: false}
profiles:
- schedulerName: mine
  plugins:
    filter: {enabled: [{name: "started_rules:own"}]}
    reserve: {enabled: [{name: "started_rules:taken"}]}
    score: {disabled: [{name: ImageLocality}]}
    postFilter: {disabled: [{name: DefaultPreemption}]}
"""


def started(folder: Path, command: Command = "serve", **fields: object) -> dict[str, Any]:
    """The line of a process with these settings."""
    (folder / "started_rules.py").write_text(RULE)
    stream = io.StringIO()
    log.configure("json", "info", stream)
    policy = load(POLICY.encode(), Library(folder=str(folder)))
    settings = Settings.model_validate({"policy": "policy.yaml", **fields})
    log_start(command, settings, policy.profiles, policy.features, ("https://api:6443", "v1.37.1"))
    return dict(json.loads(stream.getvalue()))


def test_the_start_line_names_cluster_versions_and_rules(tmp_path: Path) -> None:
    line = started(tmp_path)
    assert (line["msg"], line["command"], line["cluster"]) == ("start", "serve", "https://api:6443")
    assert (line["kubernetes"], line["follows"], line["version"]) == ("v1.37.1", "1.37", version("podseat"))
    assert (line["policy"], line["profiles"]) == ("policy.yaml", ["mine"])
    assert line["rules"] == ["started_rules:own", "started_rules:taken"]


@pytest.mark.parametrize(
    ("command", "fields", "addresses"),
    [
        ("serve", {}, ["http://127.0.0.1:8888/scheduler"]),
        (
            "serve",
            {"tls_cert": "c", "prefix": "x/", "metrics_bind": "127.0.0.1:1"},
            ["https://127.0.0.1:8888/x", "http://127.0.0.1:1"],
        ),
        ("schedule", {"bind": "127.0.0.1:8889"}, ["http://127.0.0.1:8889"]),
    ],
)
def test_the_start_line_names_the_addresses(
    tmp_path: Path, command: Command, fields: dict[str, object], addresses: list[str]
) -> None:
    assert started(tmp_path, command, **fields)["addresses"] == addresses


def test_the_start_line_names_what_is_switched_off(tmp_path: Path) -> None:
    off = started(tmp_path, simulate=True, client_ca="ca")["off"]
    assert {"leaderElect", "record", "tlsCert", "VolumeLimitScaling", "DefaultPreemption"} <= {*off}
    assert not {"simulate", "clientCa", "StorageCapacityScoring", "NodeResourcesFit", "maxStalenessSeconds"} & {*off}
    assert "clientCa" not in started(tmp_path, "schedule")["off"]


def test_lists_are_joined_by_commas_in_text() -> None:
    stream = io.StringIO()
    log.configure("text", "info", stream)
    log_start("schedule", Settings(), [default_profile()], DEFAULT_FEATURES, ("https://api:6443", "v1.37.1"))
    reported = stream.getvalue()
    assert (
        'profiles=default-scheduler rules="" addresses=http://127.0.0.1:8888 off="leaderElect, simulate, rec'
        in reported
    )
