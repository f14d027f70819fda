"""The doctor accepts the files with which kube-scheduler starts, and refuses the others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from extender.app.doctor import read_scheduler_config
from extender.policy.library import Library
from extender.policy.loading import load
from extender.table.features import VERSIONS
from tests.policy.scheduler_files import RECORDED, scheduler_file, verdict
from tests.stock.build import MINOR, Binaries

FILES = int(os.environ.get("SCHEDULER_FILES", "8"))
SEED = int(os.environ.get("SEED", "1000"))


def refusal(file: Path) -> str:
    """Returns "" if the doctor says that kube-scheduler starts with the file, else its reasons."""
    configuration, findings = read_scheduler_config(file, VERSIONS[MINOR].features)
    refusals = [finding.message for finding in findings if finding.level == "fail"]
    assert (configuration is None) == bool(refusals)
    return "; ".join(refusals)


def test_recorded_verdicts_of_kube_scheduler(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    different = []
    for entry in json.loads(RECORDED.read_text()):
        file.write_text(entry["text"])
        ours = refusal(file)
        if bool(ours) != bool(entry["refusal"]):
            different.append({**entry, "ours": ours})
    assert different == []


OFF = {"disabled": [{"name": "*"}]}
SORTED_TWICE = [
    {"schedulerName": "a"},
    {"schedulerName": "b", "plugins": {"queueSort": {"enabled": [{"name": "PrioritySort"}], **OFF}}},
]


@pytest.mark.parametrize(
    "fields",
    [
        {"profiles": [{"plugins": {"filter": {"enabled": [{"name": "lenient_rules:rule"}]}}}]},
        {"watch": [{"apiVersion": "example.com/v1", "kind": "RackPower"}]},
        {"featureGates": {"DRAFractionalCapacityRange": True}},
        {"profiles": [{"plugins": {"queueSort": OFF}}]},
        {"profiles": [{"plugins": {"bind": OFF}}]},
        {"profiles": SORTED_TWICE},
    ],
    ids=["a rule", "watch", "featureGates", "no queueSort", "no bind", "queueSort in other words"],
)
def test_a_policy_may_have_what_kube_scheduler_refuses(fields: dict[str, object], tmp_path: Path) -> None:
    rules = "from extender import predicate\n\n@predicate\ndef rule(pod, node): ...\n"
    (tmp_path / "lenient_rules.py").write_text(rules)
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps({**header, **fields}))
    assert load(file.read_bytes(), Library(folder=str(tmp_path))).profiles
    assert refusal(file)


HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
LAST = "[{name: PrioritySort}, {name: DefaultBinder}, {name: NodeAffinity, weight: -1}]"


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("profiles: [&a {schedulerName: a}, {<<: *a, schedulerName: b}]", False),
        ("profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, weight: -1}]}}}]", False),
        (f"profiles: [{{plugins: {{multiPoint: {{disabled: [{{name: '*'}}], enabled: {LAST}}}}}}}]", True),
    ],
    ids=["a key over a merged one", "a sum of weights below 0", "the last weight is negative"],
)
def test_files_that_the_real_kube_scheduler_was_asked_about(text: str, starts: bool, tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text(HEADER + text)
    assert (refusal(tmp_path / "scheduler.yaml") == "") is starts


@pytest.mark.stock
def test_verdicts_of_the_real_kube_scheduler(stock_binaries: Binaries, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    different = []
    for seed in range(SEED, SEED + FILES):
        file.write_text(scheduler_file(seed))
        stock, ours = verdict(stock_binaries["kube-scheduler"], file), refusal(file)
        if bool(ours) != bool(stock):
            different.append({"seed": seed, "stock": stock, "ours": ours})
    assert different == []
