"""Users' rules of every kind on a real API server, in `schedule` and, where they apply, in `serve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import Builder, Object, PodBuilder, make_pod
from tests.end_to_end.conftest import StartExtender, StartScheduler
from tests.end_to_end.scheduling import condition, placed, sized
from tests.running import SCHEDULER_NAME
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]
RULES = """
from pathlib import Path

from extender import (
    Handle, NodeInfo, Nominate, Pod, permit, post_bind, post_filter, pre_bind, pre_enqueue, predicate, priority,
    queue_sort, reserve,
)


@pre_enqueue(woken_by={"CustomObject": "Add"})
def after_config(pod: Pod, *, handle: Handle):
    return True if handle.objects.get("ConfigMap", "default/open") else "waiting for the ConfigMap open"


@queue_sort
def gold_first(pod: Pod):
    return 0 if pod.labels.get("tier") == "gold" else 1


@predicate(sees_pods=True, woken_by={"AssignedPod": "Delete"})
def one_of_an_app(pod: Pod, node: NodeInfo):
    return "node(s) ran the app" if node.pods.count({"app": pod.labels["app"]}) else None


@priority
def named_in_config(pod: Pod, node: NodeInfo, *, handle: Handle):
    config = handle.objects.get("ConfigMap", "default/open")
    return 100 if config and config.content["data"]["node"] == node.name else 0


@post_filter
def last(pod: Pod, refused):
    return Nominate(sorted(refused)[-1])


def note(file, text):
    with Path(file).open("a") as lines:
        lines.write(text + "\\n")


@reserve
def take(pod: Pod, node, *, file: str):
    note(file, f"reserve {pod.name}")


@permit
def pass_on(pod: Pod, node, *, file: str):
    note(file, f"permit {pod.name}")


@pre_bind
def prepare(pod: Pod, node, *, file: str):
    note(file, f"pre_bind {pod.name}")


@post_bind
def done(pod: Pod, node, *, handle: Handle, file: str):
    handle.count("bound")
    note(file, f"post_bind {pod.name}")
"""
CONFIG = {"data": {"node": "b"}}
AROUND_THE_BINDING = {"reserve": "take", "permit": "pass_on", "preBind": "prepare", "postBind": "done"}
ALL = {"preEnqueue": "after_config", "queueSort": "gold_first", "filter": "one_of_an_app", "score": "named_in_config"}
ALL |= {"postFilter": "last", **AROUND_THE_BINDING}
OF_SERVE = {"filter": "one_of_an_app", "score": "named_in_config", **AROUND_THE_BINDING}


def written(folder: Path, rules: dict[str, str]) -> tuple[str, Path]:
    """Writes the rules and a policy that names them; returns the policy's path, and the file of the rules' notes."""
    (folder / "kinds.py").write_text(RULES)
    plugins: dict[str, Any] = {point: {"enabled": [{"name": f"kinds:{rule}"}]} for point, rule in rules.items()}
    if "queueSort" in rules:
        plugins["queueSort"]["disabled"] = [{"name": "PrioritySort"}]
    arguments = {"file": str(folder / "notes")}
    configured = [{"name": f"kinds:{rule}", "args": arguments} for rule in AROUND_THE_BINDING.values()]
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    policy = {
        **header,
        "watch": [{"apiVersion": "v1", "kind": "ConfigMap"}],
        "profiles": [{"schedulerName": SCHEDULER_NAME, "plugins": plugins, "pluginConfig": configured}],
    }
    (folder / "policy.yaml").write_text(json.dumps(policy))
    return str(folder / "policy.yaml"), folder / "notes"


def config_map() -> Object:
    return {**Builder("v1", "ConfigMap", "open", "default").obj(), **CONFIG}


def of_app(name: str, **labels: str) -> PodBuilder:
    return make_pod(name).req(cpu="1").label(app="web", **labels)


def weighted(configuration: dict[str, Any]) -> dict[str, Any]:
    """Makes the extender's scores more important than all in-tree scores together."""
    (extender,) = configuration["extenders"]
    return {**configuration, "extenders": [{**extender, "weight": 100}]}


def message(control_plane: ControlPlane, pod: str) -> str:
    return str(condition(control_plane, pod).get("message", ""))


def test_rules_of_every_kind_in_the_loop(
    control_plane: ControlPlane, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    policy, notes = written(tmp_path, ALL)
    client = control_plane.client
    client.create(sized("a", "4").taint("closed").obj(), sized("b", "4").obj())
    with start_scheduler("--policy", policy) as scheduler:
        client.create(of_app("plain").obj(), of_app("gold", tier="gold").obj())
        gated = 'scheduler_pending_pods{queue="gated"}'
        assert wait_until(lambda: scheduler.metric(gated) == 2)
        assert placed(control_plane) == {}
        client.create(config_map())
        assert wait_until(lambda: placed(control_plane) == {"gold": "b"})
        assert wait_until(lambda: "node(s) ran the app" in message(control_plane, "plain"))
        assert wait_until(lambda: client.get("Pod", "plain")["status"].get("nominatedNodeName") == "b")
        lines = [f"{point} gold" for point in ("reserve", "permit", "pre_bind", "post_bind")]
        assert wait_until(lambda: notes.read_text().splitlines() == lines)
        assert scheduler.metric('extender_rule_events_total{name="bound",rule="kinds:done"}') == 1
        client.delete("Pod", "gold")
        assert wait_until(lambda: placed(control_plane) == {"plain": "b"})


def test_the_rules_that_apply_in_the_webhook(
    control_plane: ControlPlane, start_extender: StartExtender, tmp_path: Path
) -> None:
    policy, notes = written(tmp_path, OF_SERVE)
    client = control_plane.client
    client.create(config_map(), sized("a", "4").obj(), sized("b", "4").obj(), sized("c", "4").obj())
    with start_extender("--policy", policy) as extender, control_plane.scheduler(weighted(extender.configuration())):
        client.create(of_app("first").obj())
        assert wait_until(lambda: placed(control_plane) == {"first": "b"})
        lines = [f"{point} first" for point in ("reserve", "permit", "pre_bind", "post_bind")]
        assert wait_until(lambda: notes.read_text().splitlines() == lines)
        assert extender.metric('extender_rule_events_total{name="bound",rule="kinds:done"}') == 1
        for name in ("second", "third"):
            client.create(of_app(name).obj())
        assert wait_until(lambda: sorted(placed(control_plane).values()) == ["a", "b", "c"])
        client.create(of_app("fourth").obj())
        assert wait_until(lambda: "node(s) ran the app" in message(control_plane, "fourth"))


SLOW = """
import time


@pre_bind
def slow(pod: Pod, node):
    while not Path({end!r}).exists():
        time.sleep(0.05)
"""


def test_a_rule_that_hangs_is_logged_while_it_hangs(
    control_plane: ControlPlane, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    policy, _ = written(tmp_path, {"preBind": "slow"})
    end = tmp_path / "end"
    (tmp_path / "kinds.py").write_text(RULES + SLOW.format(end=str(end)))
    control_plane.client.create(sized("a", "4").obj(), of_app("web").obj())
    with start_scheduler("--policy", policy, "--decision-seconds", "0") as scheduler:
        line = "rule has not returned yet rule=kinds:slow pod=default/web node=a seconds="
        assert wait_until(lambda: line in scheduler.process.log.read_text())
        assert placed(control_plane) == {}
        end.touch()
        assert wait_until(lambda: placed(control_plane) == {"web": "a"})
