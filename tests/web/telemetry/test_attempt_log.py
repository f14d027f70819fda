"""A line for each attempt of the loop, with what became of the pod."""

from __future__ import annotations

import io
import json

from extender.runtime.clock import ManualClock
from extender.web import log
from extender.web.scheduler_metrics import SchedulerMetrics
from tests.builders import make_node, make_pod
from tests.scheduler.world import NAME, World


def attempts(level: str = "info") -> list[dict[str, object]]:
    """The lines of a loop that binds a pod and refuses another."""
    stream = io.StringIO()
    log.configure("json", level, stream)
    node = make_node("n1").capacity(cpu="4", pods="9").allocatable(cpu="4", pods="9")
    pods = [make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu) for name, cpu in (("fits", "1"), ("large", "9"))]
    World(node, *pods, telemetry=SchedulerMetrics(ManualClock(), "1")).settle()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in lines if line["msg"] == "attempt"]


def test_a_line_names_the_pods_node_or_the_reason_why_it_has_none() -> None:
    reported = {str(line["pod"]): line for line in attempts()}
    bound, refused = reported["default/fits"], reported["default/large"]
    assert bound.items() >= {"result": "scheduled", "node": "n1", "attempt": 1, "uid": "fits", "profile": NAME}.items()
    assert bound["ms"] == 0
    assert "error" not in bound
    assert (refused["result"], refused.get("node")) == ("unschedulable", None)
    assert "1 Insufficient cpu" in str(refused["error"])


def test_attempts_are_not_logged_at_level_warning() -> None:
    assert attempts("warning") == []
