"""The alerts, as promtool evaluates them for two installations: each fires for its own series and for no others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.packaging import package
from tests.manifests.rendering import NAMESPACE, ROOT, Object, objects, the
from tests.stock.build import Binaries

pytestmark = [pytest.mark.stock, pytest.mark.clients, pytest.mark.promtool]

OTHER = "other-system"
ALERTS = {
    "ExtenderWatchStale": ('extender_watch_staleness_seconds{kind="Pod",%s}', "100+0x30", {"kind": "Pod"}),
    "ExtenderBindsFail": ('extender_binds_total{result="unknown",%s}', "0+60x30", {"result": "unknown"}),
    "ExtenderCacheDiffers": ('extender_cache_differences_total{kind="Node",%s}', "0+1x30", {"kind": "Node"}),
    "ExtenderPolicyNotAdopted": ('extender_policy_last_reload_successful{pod="p",%s}', "0+0x30", {"pod": "p"}),
    "ExtenderRuleFailing": ('extender_rule_failures_total{rule="r",%s}', "0+1x30", {"rule": "r"}),
    "ExtenderSlow": ('extender_verb_duration_seconds_bucket{verb="filter",le="%s",%%s}', "0+60x30", {"verb": "filter"}),
    "ExtenderHasNoLeader": ("extender_leader{%s}", "0+0x30", {}),
}
"""Alert -> a series, its values at each minute that are alarming, and the labels of the alert."""


def rules(binaries: Binaries, namespace: str) -> Object:
    """Returns the rules of an installation of the shape service in the namespace."""
    values = {"shape": "service", "metrics": {"prometheusRule": {"enabled": True}}}
    rule = the(objects(binaries, values, namespace), "PrometheusRule")
    return {"groups": rule["spec"]["groups"]}


def series(alert: str, namespace: str, values: str) -> list[dict[str, str]]:
    name, _, _ = ALERTS[alert]
    where = f'job="extender-metrics",namespace="{namespace}"'
    if alert == "ExtenderSlow":  # every call takes between 2 and 3 s
        buckets = (("2", "0+0x30"), ("3", values), ("+Inf", values))
        return [{"series": (name % le) % where, "values": counts} for le, counts in buckets]
    return [{"series": name % where, "values": values}]


def calm(alert: str, namespace: str) -> list[dict[str, str]]:
    """Returns series that must not set the alert off."""
    return series(
        alert, namespace, {"ExtenderPolicyNotAdopted": "1+0x30", "ExtenderHasNoLeader": "1+0x30"}.get(alert, "0+0x30")
    )


def promtool(binaries: Binaries, folder: Path, *arguments: str) -> None:
    command: list[str | Path] = [binaries["promtool"], *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def folder(stock_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rules of two installations, one file each."""
    folder = tmp_path_factory.mktemp("alerts")
    for namespace in (NAMESPACE, OTHER):
        (folder / f"{namespace}.yaml").write_text(yaml.safe_dump(rules(stock_binaries, namespace)))
    return folder


def test_promtool_accepts_the_rules(stock_binaries: Binaries, folder: Path) -> None:
    promtool(stock_binaries, folder, "check", "rules", "--lint-fatal", f"{NAMESPACE}.yaml", f"{OTHER}.yaml")


def test_every_alert_is_described_and_leads_to_a_chapter(stock_binaries: Binaries) -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text()
    chapters = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^## (.*)$", text, re.M)
    }
    alerts = rules(stock_binaries, NAMESPACE)["groups"][0]["rules"]
    assert {alert["alert"] for alert in alerts} == set(ALERTS)
    for alert in alerts:
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
        page, _, chapter = alert["annotations"]["runbook_url"].partition("#")
        assert (page, chapter in chapters) == ("docs/troubleshooting.md", True)


def test_the_packaged_chart_leads_to_its_home(stock_binaries: Binaries, tmp_path: Path) -> None:
    chart = package(stock_binaries["helm"], tmp_path, "https://forge.example/podseat")
    command: list[str | Path] = [
        stock_binaries["helm"],
        "template",
        "x",
        chart,
        "--set=metrics.prometheusRule.enabled=true",
    ]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    urls = set(re.findall(r"runbook_url: (.*)#", rendered))
    assert urls == {"https://forge.example/podseat/blob/HEAD/docs/troubleshooting.md"}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_for_its_own_installation_only(stock_binaries: Binaries, folder: Path, alert: str) -> None:
    _, alarming, labels = ALERTS[alert]
    severity = "critical" if alert == "ExtenderHasNoLeader" else "warning"
    expected: dict[str, Any] = {"exp_labels": {**labels, "severity": severity}}
    # What promtool expects has the annotations too; the texts are taken from the rules, with their values.
    (rule,) = (each for each in rules(stock_binaries, NAMESPACE)["groups"][0]["rules"] if each["alert"] == alert)
    value = {"ExtenderWatchStale": "100", "ExtenderBindsFail": "1", "ExtenderSlow": "2.99"}.get(alert, "")
    for name, text in rule["annotations"].items():
        for label, content in labels.items():
            text = text.replace("{{ $labels." + label + " }}", content)
        expected.setdefault("exp_annotations", {})[name] = text.replace("{{ $value }}", value)
    case = {
        "rule_files": [f"{NAMESPACE}.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series(alert, mine, alarming) + calm(alert, OTHER if mine == NAMESPACE else NAMESPACE),
                "alert_rule_test": [
                    {"eval_time": "20m", "alertname": alert, "exp_alerts": [expected] if fires else []}
                ],
            }
            for mine, fires in ((NAMESPACE, True), (OTHER, False))
        ],
    }
    (folder / f"{alert}.test.yaml").write_text(yaml.safe_dump(case))
    promtool(stock_binaries, folder, "test", "rules", f"{alert}.test.yaml")
