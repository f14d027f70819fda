"""Reads the metrics of the stock kube-scheduler, and says what each family of a scrape is."""

from __future__ import annotations

import re
import ssl
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.stock.control_plane import ADMIN_TOKEN, ControlPlane
from tests.stock.process import Process

OURS = re.compile(r"scheduler_|resourceclaim|workqueue_depth$|leader_election_|rest_client_request")
"""The families whose names both use; a scrape has many more of Go's and of the API machinery's."""

Family = dict[str, Any]


def families(text: str) -> dict[str, Family]:
    """Returns each family of a scrape: its type, its labels and the bounds of its buckets."""
    found: dict[str, Family] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if OURS.match(name) and family.samples:
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            bounds = {float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels}
            found[name] = {
                "type": family.type,
                "labels": sorted(labels),
                "buckets": [round(bound, 9) for bound in sorted(bounds - {float("inf")})],
            }
    return found


def scrape(plane: ControlPlane, scheduler: Process) -> str:
    port = next(argument.partition("=")[2] for argument in scheduler.command if argument.startswith("--secure-port="))
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics", headers=headers)
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        body: str = answer.read().decode()
        return body
