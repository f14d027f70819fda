"""What the pod's own scheduler wrote is shown whenever it contradicts the verdict."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from extender import Cluster
from extender.offline.explain import terminal
from extender.offline.explain.overview import as_text
from tests.builders import Object, make_node, make_pod

NODES = [make_node(name).capacity(cpu="4", memory="8Gi", pods="110").obj() for name in ("n1", "n2")]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
REFUSED = 'Post "https://extender:8888/filter": connection refused'


def waiting(message: str, cpu: str = "1", reason: str = "SchedulerError") -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    condition["lastTransitionTime"] = "2026-11-21T11:57:00Z"
    pod = make_pod("p").scheduler("default-scheduler").req(cpu=cpu).obj()
    return {**pod, "status": {"phase": "Pending", "conditions": [condition]}}


def test_a_pod_that_fits_shows_why_its_scheduler_does_not_place_it() -> None:
    cluster = Cluster.from_objects([*NODES, waiting(REFUSED)])
    explanation = cluster.explain("default/p")
    document = explanation.to_dict()
    assert document["condition"] == {
        "author": "default-scheduler",
        "since": "2026-11-21T11:57:00+00:00",
        "reason": "SchedulerError",
        "message": REFUSED,
    }
    line = list(terminal.summary(explanation))[1]
    assert re.fullmatch(re.escape(f"but default-scheduler says {REFUSED!r}, written ") + r"\d+[smhd] ago", line)
    assert "default-scheduler says: Post" in explanation.to_html()
    pods = cluster.explain_pending()
    assert list(as_text(pods, [], NOW))[-1].endswith(f"default-scheduler says {REFUSED!r} (3m ago)")
    assert json.loads(json.dumps(pods[0].to_dict()))["condition"]["message"] == REFUSED


def managed_by(manager: str, time: str | None, kind: str = "PodScheduled") -> Object:
    fields: Object = {"f:status": {"f:conditions": {f'k:{{"type":"{kind}"}}': {".": {}, "f:message": {}}}}}
    return {"manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields}


@pytest.mark.parametrize(
    ("managers", "author", "since"),
    [
        pytest.param(
            [managed_by("kubelet", "2026-11-21T11:59:00Z", "Ready"), managed_by("karpenter", "2026-11-21T11:58:00Z")],
            *("karpenter", "2026-11-21T11:58:00+00:00"),
            id="another controller",
        ),
        pytest.param(
            [managed_by("kube-scheduler", "2026-11-21T11:59:30Z"), managed_by("karpenter", "2026-11-21T11:58:00Z")],
            *("kube-scheduler", "2026-11-21T11:59:30+00:00"),
            id="the last of two writers",
        ),
        pytest.param(
            [managed_by("kube-scheduler", None), {"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
            *("kube-scheduler", "2026-11-21T11:57:00+00:00"),
            id="no time",
        ),
        pytest.param(None, "default-scheduler", "2026-11-21T11:57:00+00:00", id="null"),
    ],
)
def test_a_condition_has_the_author_and_the_age_of_its_last_write(
    managers: list[Object] | None, author: str, since: str
) -> None:
    """A repeated refusal leaves lastTransitionTime as it is, so that an hour of refusals looked like an old one."""
    pod = waiting(REFUSED)
    pod["metadata"]["managedFields"] = managers
    condition = Cluster.from_objects([*NODES, pod]).explain("default/p").condition
    assert condition is not None
    assert (condition.author, condition.since) == (author, since)


def test_reasons_of_a_rule_that_is_not_known_here_are_shown() -> None:
    message = "0/2 nodes are available: 2 Insufficient cpu, 1 the rack is reserved."
    pod = Cluster.from_objects([*NODES, waiting(message, cpu="5", reason="Unschedulable")]).explain_pending()[0]
    assert pod.blocker.endswith(f"; default-scheduler says {message!r}")


@pytest.mark.parametrize(
    ("message", "cpu", "reason"),
    [
        pytest.param("0/9 nodes are available: 9 Insufficient cpu.", "5", "Unschedulable", id="other numbers"),
        pytest.param(
            "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available.",
            *("5", "Unschedulable"),
            id="preemption",
        ),
        pytest.param("Scheduling is blocked due to non-empty scheduling gates", "1", "SchedulingGated", id="gates"),
    ],
)
def test_a_condition_that_agrees_is_not_repeated(message: str, cpu: str, reason: str) -> None:
    assert Cluster.from_objects([*NODES, waiting(message, cpu, reason)]).explain("default/p").condition is None


def test_the_cause_in_the_list_is_the_one_that_can_change() -> None:
    pool = make_node("ml").label(pool="ml").capacity(cpu="4", memory="8Gi", pods="110").obj()
    writer = make_pod("writer").req(cpu="3").node("ml").obj()
    pod = make_pod("train").req(cpu="2").node_selector(pool="ml").obj()
    summary = Cluster.from_objects([*NODES, pool, writer, pod]).explain_pending()[0]
    assert summary.cause == "Insufficient cpu"
    assert summary.available == 0


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ({"waiting": {"reason": "ImagePullBackOff"}}, ["cannot pull its image nope:1 (ImagePullBackOff)"]),
        ({"waiting": {"reason": "ErrImagePull", "message": "no"}}, ["cannot pull its image nope:1 (ErrImagePull)"]),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, ["waits (CrashLoopBackOff)"]),
        ({"waiting": {"reason": "ContainerCreating"}}, []),
        ({"running": {"startedAt": "2026-11-21T11:57:00Z"}}, []),
        (None, []),
    ],
)
@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses"])
def test_a_bound_pod_says_what_keeps_it_from_starting(field: str, state: Object | None, cause: list[str]) -> None:
    pod = make_pod("p").node("n1").obj()
    pod["spec"]["containers"] = [{"name": "c", "image": "nope:1"}]
    pod["status"] = {"phase": "Pending", field: [{"name": "c", "image": "nope:1", "state": state}]}
    notes = Cluster.from_objects([*NODES, pod]).explain("default/p").notes
    about = [each for each in notes if each.startswith("it has a node, so no scheduler can help it: ")]
    assert [each.partition(": container c ")[2] for each in about] == cause
