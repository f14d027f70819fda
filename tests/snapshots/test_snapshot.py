"""Snapshots: the same decisions come of what was written down, with names and without."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import Cluster
from extender.framework.profile import Profiles
from extender.model.redaction import Redaction
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile
from extender.policy.loading import read as policy
from extender.snapshots import files
from extender.snapshots.files import write_snapshot
from extender.table.features import DEFAULT_FEATURES
from tests.builders import Object, make_node, make_pod
from tests.conformance.answered import answered
from tests.policy.configurations import profile

EXAMPLE = Path(files.__file__).parents[1] / "offline/example.yaml"
CASES = 12
NAME = re.compile(r'".*?"|(class|claim|device|pool|request) \S+|(?<=Insufficient )\S+/\S+')
"""Parts of reasons that name an object."""
SECRETS = ("general-a1", "web-6d5f8", "shop", "registry.example.com", "postgres", "forecast")


def read_again(path: Path, data: bytes) -> Cluster:
    path.write_bytes(data)
    return Cluster.load(path)


def verdicts(cluster: Cluster) -> list[Any]:
    """What was decided for each pending pod, without names."""
    found = []
    for pod in cluster.pending:
        decision = cluster.decide(pod)
        scores = {plugin: sorted(score.weighted.tolist()) for plugin, score in decision.scores.items()}
        candidates = decision.preemption.candidates if decision.preemption else {}
        victims = sorted(len(candidate.victims) for candidate in candidates.values())
        reasons = sorted((NAME.sub("", reason), nodes) for reason, nodes in decision.reasons.items())
        found.append((reasons, sorted(decision.total.tolist()), scores, victims))
    return found


@pytest.mark.parametrize("redact", [False, True], ids=["named", "redacted"])
def test_the_same_is_decided(redact: bool, tmp_path: Path) -> None:
    data = write_snapshot(files.read_snapshot(EXAMPLE).objects, redaction=Redaction() if redact else None)
    assert verdicts(read_again(tmp_path / "c.json", data)) == verdicts(Cluster.load(EXAMPLE))


@pytest.mark.parametrize(
    "kind", ["devices", "volumes", "volume-limits", "topology-spread", "inter-pod-affinity", "node-affinity", "mixed"]
)
def test_the_same_is_decided_on_cases_of_every_kind(kind: str, tmp_path: Path) -> None:
    """Volumes and devices refer to each other by names in many ways."""
    chosen = [case for case in answered() if case["name"].startswith(f"{kind}-0")][:CASES]
    assert len(chosen) == CASES
    for case in chosen:
        pod = {**case["pod"], "kind": "Pod", "apiVersion": "v1"}
        key = [pod["metadata"].get(field) for field in ("namespace", "name")]
        others = [
            obj for obj in case["cluster"]["items"] if [obj["metadata"].get(f) for f in ("namespace", "name")] != key
        ]
        cluster = Cluster.from_objects([*others, pod])
        again = read_again(tmp_path / "c.json", cluster.snapshot(redact=True))
        assert verdicts(again) == verdicts(cluster), case["name"]


def test_a_snapshot_keeps_every_object(tmp_path: Path) -> None:
    objects = files.read_snapshot(EXAMPLE).objects
    (tmp_path / "c.json.gz").write_bytes(write_snapshot(objects, compress=True))
    again = files.read_snapshot(tmp_path / "c.json.gz").objects
    assert Counter(type(obj).__name__ for obj in again) == Counter(type(obj).__name__ for obj in objects)


@pytest.mark.parametrize("name", ["c.json", "c.json.gz", "c.yaml"])
def test_answers_about_a_snapshot_follow_its_version(name: str, tmp_path: Path) -> None:
    data = write_snapshot(files.read_snapshot(EXAMPLE).objects, kubernetes_version="v1.38.2-gke.1")
    if name.endswith(".yaml"):
        data = yaml.safe_dump(json.loads(data)).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    state = ClusterState.load(tmp_path / name)
    assert (state.kubernetes_version, state.profiles.features.version) == ("v1.38.2-gke.1", "1.38")
    assert state.table.features is state.profiles.features
    assert state.copy(Profiles([default_profile()])).profiles.features.version == "1.38"
    of_policy = policy({**profile(), "kubernetesVersion": "1.36"}).scheduler_profiles()
    assert ClusterState.load(tmp_path / name, of_policy).profiles.features.version == "1.36"
    again = Cluster.load(tmp_path / name).snapshot()
    assert json.loads(again)["kubernetesVersion"] == "v1.38.2-gke.1"


def test_a_snapshot_without_a_version_follows_the_newest_that_is_released() -> None:
    state = ClusterState.load(EXAMPLE)
    assert (state.kubernetes_version, state.profiles.features) == ("", DEFAULT_FEATURES)


def test_no_name_is_left_in_what_is_redacted() -> None:
    text = write_snapshot(files.read_snapshot(EXAMPLE).objects, redaction=Redaction()).decode()
    assert [secret for secret in SECRETS if secret in text] == []
    assert "topology.kubernetes.io/zone" in text


def test_hashes_of_two_snapshots_differ() -> None:
    objects = files.read_snapshot(EXAMPLE).objects
    assert write_snapshot(objects, redaction=Redaction()) != write_snapshot(objects, redaction=Redaction())


@pytest.mark.parametrize("redact", [False, True], ids=["named", "redacted"])
def test_annotations_stay_but_no_manifest_and_in_a_redacted_file_no_free_text(redact: bool) -> None:
    """A user's rule may read any annotation."""
    pod: Object = make_pod("p").obj()
    pod["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "example.com/owner": "me",
        "kopf.zalando.org/last-handled-configuration-ofDRS": "secret",
        "operator.example.com/last-applied-spec": "secret",
        "volume.kubernetes.io/selected-node": "7",
    }
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "secret"}]
    cluster = Cluster.from_objects([make_node("n").obj(), pod])
    (item,) = (item for item in json.loads(cluster.snapshot(redact=redact))["items"] if item["kind"] == "Pod")
    others = {} if redact else {"example.com/owner": "me"}
    assert item["metadata"]["annotations"] == {**others, "volume.kubernetes.io/selected-node": "7"}
    assert "secret" not in json.dumps(item)


def test_a_cluster_is_written_with_what_was_bound() -> None:
    cluster = Cluster.from_objects([make_node("n").obj(), make_pod("p").obj()])
    cluster.bind(cluster.pod("default/p"), "n")
    written = json.loads(gzip.decompress(cluster.snapshot(compress=True)))
    assert [item["spec"]["nodeName"] for item in written["items"] if item["kind"] == "Pod"] == ["n"]
