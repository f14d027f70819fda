"""The checks accept what is right: clusters for which one of them was once too strict."""

from __future__ import annotations

import pytest

from tests.answers.case import Check
from tests.answers.checks import check_drain, check_group, check_order, check_redaction, faults
from tests.answers.smaller import check_smaller
from tests.builders import Object, make_node, make_pod, make_pod_group, make_storage_class

NODE = make_node("n").capacity(cpu="2").obj()
UNREADABLE = {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In"}]}}
UNSCORED = (
    make_pod("p")
    .node_selector(pool="a")
    .spec(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [UNREADABLE]}})
)
CLAIM = {"accessModes": ["ReadWriteOnce"], "storageClassName": "wait", "resources": {"requests": {"storage": "1Gi"}}}
EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}
AGENT = make_pod("agent").owner("DaemonSet", "agents").toleration("node.kubernetes.io/unschedulable")
RUNNING = [make_pod(name).req(cpu=cpu).node("n").priority(0).obj() for name, cpu in (("a", "500m"), ("b", "1500m"))]


@pytest.mark.parametrize(
    ("check", "pod", "items"),
    [
        pytest.param(check_drain, AGENT.obj(), [NODE], id="a DaemonSet's pod is placed on a drained node"),
        pytest.param(
            check_smaller, UNSCORED.obj(), [NODE, make_node("m").obj()], id="no change helps a pod without scores"
        ),
        pytest.param(
            check_order, make_pod("p").req(cpu="1").priority(9).obj(), [NODE, *RUNNING], id="equally important victims"
        ),
        pytest.param(
            check_group,
            make_pod("p").group("ring").volume("v", EPHEMERAL).obj(),
            [NODE, make_storage_class("wait"), make_pod_group("ring")],
            id="a simulation creates the claim of a member, explain does not",
        ),
        pytest.param(
            check_redaction,
            make_pod("p").req(cpu="1").priority(9).obj(),
            [NODE, *RUNNING],
            id="equally important victims in a redacted snapshot",
        ),
    ],
)
def test_a_check_accepts_what_is_right(check: Check, pod: Object, items: list[Object]) -> None:
    assert faults({"cluster": {"items": items}, "pod": pod}, [check]) == {}
