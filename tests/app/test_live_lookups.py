"""A process follows the version of its settings, else of its policy, else of its API server.

The line about its start says by what it decides, where it listens, and what is switched off.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.app.feed import feed_factory_of
from extender.app.live_lookups import FollowedVersion, log_start, version_to_follow
from extender.app.schedule import SchedulerProcess
from extender.app.serve import WebhookProcess
from extender.cache.cache import Cache
from extender.config.settings import Command, Settings
from extender.engine import Decision
from extender.engine.engine import Engine
from extender.framework.profile import Profiles
from extender.plugins.registry import default_profile
from extender.policy.library import Library
from extender.policy.loading import load, read
from extender.policy.policy import Policy
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.runtime.unsettled import UnsettledWrites
from extender.snapshots.objects import to_objects, to_pod
from extender.table.features import DEFAULT_FEATURES, RELEASED, VERSIONS
from extender.web import log
from extender.web.access import CONFIGZ
from tests.builders import Object, make_node, stored
from tests.cluster.fake_api import FakeApiServer, fake_api
from tests.conformance.test_behaviours import SMALL, decided, details
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


@pytest.mark.parametrize(
    ("recorded", "policy", "followed"),
    [
        pytest.param({"kubernetesVersion": "v1.38.0-beta.0"}, WITHOUT, "1.38", id="the version of its API server"),
        pytest.param({"kubernetesVersion": "v1.38.0"}, OF_1_36, "1.36", id="the policy's takes precedence"),
        pytest.param({}, WITHOUT, RELEASED, id="the newest that is released, if it records none"),
    ],
)
@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump], ids=["JSON", "YAML"])
def test_the_version_in_a_file_is_followed(
    dump: Callable[[Object], str], recorded: Object, policy: Policy, followed: str, tmp_path: Path
) -> None:
    file = tmp_path / "cluster"
    file.write_text(dump({"apiVersion": "v1", "kind": "List", **recorded, "items": [make_node("n1").obj()]}))
    assert version_to_follow(Settings(cluster=file), policy).kubernetes_version == followed


class Cluster:
    """An API server whose version changes, and the versions that a process follows one after the other."""

    def __init__(self, api: FakeApiServer, settings: Settings, policy: Policy = WITHOUT) -> None:
        self.followed: list[str] = []
        self.api = api
        serve_version(api, "v1.37.1")
        is_chosen = (settings.chosen_version or policy.features.choices.version) is not None
        self.watch = FollowedVersion(
            version_to_follow(settings, policy),
            policy,
            lambda features: self.followed.append(features.version),
            is_chosen=is_chosen,
        )

    def report(self, *versions: str) -> None:
        """Looks once at each version."""
        for version in versions:
            serve_version(self.api, version)
            self.watch.look()


def serve_version(api: FakeApiServer, version: str) -> None:
    """Answers the next question for the version."""
    api.fail("/version", lambda call: call.json(200, {"gitVersion": version}))


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api() as api:
        yield api


def test_an_upgraded_cluster_is_followed(api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(api, Settings(kubeconfig=api.kubeconfig(tmp_path)))
    cluster.report("v1.37.1", "v1.37.2", "v1.38.0")
    assert cluster.followed == []
    cluster.report("v1.38.0", "v1.38.0")
    assert cluster.followed == ["1.38"]
    assert cluster.watch.settings.kubernetes_version == "1.38"
    assert [record.message.partition(" cluster=")[0] for record in caplog.records] == ["kubernetes version changed"]
    cluster.report("v1.37.1", "v1.37.1")
    assert cluster.followed == ["1.38", "1.37"]


def test_api_servers_of_two_versions_change_nothing(api: FakeApiServer, tmp_path: Path) -> None:
    cluster = Cluster(api, Settings(kubeconfig=api.kubeconfig(tmp_path)))
    cluster.report(*["v1.38.0", "v1.37.1"] * 5)
    assert cluster.followed == []


def test_an_api_server_that_does_not_answer_changes_nothing(api: FakeApiServer, tmp_path: Path) -> None:
    cluster = Cluster(api, Settings(kubeconfig=api.kubeconfig(tmp_path)))
    cluster.report("v1.38.0")
    cluster.watch.look()  # 404
    assert cluster.followed == []


def test_a_chosen_version_stays(api: FakeApiServer, tmp_path: Path) -> None:
    settings = Settings(kubeconfig=api.kubeconfig(tmp_path))
    for cluster in (
        Cluster(api, settings.model_copy(update={"kubernetes_version": "1.36"})),
        Cluster(api, settings, OF_1_36),
    ):
        cluster.report("v1.38.0", "v1.38.0")
        assert (cluster.followed, cluster.watch.settings.kubernetes_version) == ([], "1.36")


def test_a_version_without_a_chosen_gate_is_not_followed(
    api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gates = "GenericWorkload=true,PodGroupPreemptionPolicy=true"
    cluster = Cluster(api, Settings(kubeconfig=api.kubeconfig(tmp_path), feature_gates=gates))
    cluster.report("v1.38.0", "v1.38.0")
    assert cluster.followed == []
    assert "unrecognized feature gate" in caplog.records[-1].message


@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL)
def test_decisions_of_a_running_cache_follow(case: Object) -> None:
    """The tables, and what plugins have derived from them, decided under 1.37 before."""
    cache, profiles = Cache(ManualClock(), Telemetry()), Profiles([default_profile()])
    for obj in to_objects(case["cluster"]["items"]):
        cache.changed(type(obj).__name__, obj)
    incoming = to_pod(stored(case["pod"]))

    def decide() -> Decision:
        with cache.snapshot("test") as table:
            return Engine(table, profiles).decide(incoming)

    before = details(decide())
    with cache.snapshot("a reader that has begun"):
        cache.use(VERSIONS["1.38"].features)
    assert details(decide()) == details(decided(case, VERSIONS["1.38"].features))
    cache.use(VERSIONS["1.37"].features)
    assert details(decide()) == before


@pytest.mark.parametrize("command", ["serve", "schedule"])
def test_a_process_follows_and_shows_it(command: str, api: FakeApiServer, tmp_path: Path) -> None:
    serve_version(api, "v1.37.1")
    record = tmp_path / "recording.jsonl.gz"
    settings = Settings(kubeconfig=api.kubeconfig(tmp_path), record=record, bind="127.0.0.1:0")
    process: WebhookProcess | SchedulerProcess
    if command == "serve":
        process = WebhookProcess(settings, feed_factory_of(settings), UnsettledWrites(10.0))
    else:
        process = SchedulerProcess(settings, threading.Event())
    upkeep = process.upkeep
    upkeep.setup.observation.start()
    for _ in range(2):
        serve_version(api, "v1.38.0")
        upkeep.version.look()
    assert (upkeep.cache.features, upkeep.profiles.features) == (VERSIONS["1.38"].features,) * 2
    shown = json.loads(upkeep.private_pages().pages[CONFIGZ]({}, "").body)
    assert [each["kubernetesVersion"] for each in shown.values()] == ["1.38"]
    upkeep.setup.observation.stop()
    files = sorted(tmp_path.glob("recording*"))
    headers = [json.loads(gzip.decompress(file.read_bytes()).splitlines()[0]) for file in files]
    assert sorted(header["settings"]["kubernetesVersion"] for header in headers) == ["1.37", "1.38"]


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
    assert (line["kubernetes"], line["follows"], line["version"]) == ("v1.37.1", "1.37", installed_version("podseat"))
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
