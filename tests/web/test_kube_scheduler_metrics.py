"""Our series that have kube-scheduler's names, beside a recorded scrape of kube-scheduler's own /metrics.

`RECORD=1 pytest tests/web/test_kube_scheduler_metrics.py` writes the recording again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from extender.table.features import VERSIONS
from extender.web.series import ALL_SERIES, Series, as_in
from tests.builders import make_node, make_pod, make_priority_class
from tests.stock.build import MINOR
from tests.stock.control_plane import ControlPlane
from tests.stock.scraping import Family, families, scrape
from tests.stock.waiting import wait_until
from tests.web import upstream_names

RECORDING = Path(__file__).with_name("kube-scheduler-metrics.json")
DIFFERENCES = Path(__file__).parents[2] / "docs/differences.md"
FAMILIES: Mapping[str, Family] = json.loads(RECORDING.read_text())


def of(series: Series) -> Family:
    return {
        "type": series.kind,
        "labels": sorted(series.labels),
        "buckets": [round(bound, 9) for bound in series.buckets],
    }


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() & ALL_SERIES.keys()))
def test_a_series_with_kube_schedulers_name_has_its_type_labels_and_buckets(name: str) -> None:
    assert of(as_in(VERSIONS[MINOR].features.behaviours)[name]) == FAMILIES[name]


SECTION = DIFFERENCES.read_text().partition("## Metrics, events and conditions")[2]
TABLE, _, MISSING = SECTION.partition("These are missing:")
TABLE = TABLE[TABLE.index("|---|") :]
NAMES: Mapping[str, list[str]] = json.loads(upstream_names.RECORDING.read_text())


def named_in(text: str) -> list[re.Pattern[str]]:
    names = re.findall(r"`([a-z_*]+)`", text)
    return [re.compile(rf"(scheduler_)?{re.escape(name)}".replace(r"\*", ".*")) for name in names]


@pytest.mark.parametrize("name", sorted({*FAMILIES, *NAMES["metrics"]}))
def test_a_metric_of_kube_scheduler_is_in_the_table_or_in_the_list_of_missing_ones(name: str) -> None:
    part = TABLE if name in ALL_SERIES else MISSING.partition("The events")[0]
    assert any(pattern.fullmatch(name) for pattern in named_in(part))


@pytest.mark.parametrize("kind", ["events", "conditions", "reasons"])
def test_every_event_and_condition_of_kube_scheduler_is_described(kind: str) -> None:
    assert set(NAMES[kind]) <= set(re.findall(r"`(\w+)`", MISSING))


@pytest.mark.stock
def test_the_recorded_names_are_those_in_kube_schedulers_source() -> None:
    assert upstream_names.read() == NAMES


@pytest.mark.stock
def test_the_recording_is_what_kube_scheduler_says_today(control_plane: ControlPlane) -> None:
    client = control_plane.client
    size = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    client.create(
        make_priority_class("high", 1000),
        make_node("n1").capacity(**size).allocatable(**size).obj(),
        make_pod("victim").req(cpu="1").obj(),
    )
    with control_plane.scheduler() as scheduler:
        wait_until(lambda: client.get("Pod", "victim")["spec"].get("nodeName"))
        client.create(
            make_pod("gated").gate("wait").obj(), make_pod("preemptor").req(cpu="1").priority_class("high").obj()
        )
        # kube-scheduler measures the plugins of every tenth pod, drawn at random
        client.create_many(make_pod(f"large-{i}").req(cpu="9").obj() for i in range(80))
        wait_until(lambda: client.get("Pod", "preemptor")["spec"].get("nodeName"))
        wait_until(lambda: "scheduler_plugin_execution_duration" in scrape(control_plane, scheduler))
        found = families(scrape(control_plane, scheduler))
    if os.environ.get("RECORD"):
        RECORDING.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    assert {name: found.get(name) for name in FAMILIES} == FAMILIES
