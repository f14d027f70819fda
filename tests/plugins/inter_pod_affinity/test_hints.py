"""InterPodAffinity: the events that may help."""

from __future__ import annotations

import msgspec
import pytest

from extender.framework.cluster_events import Action, Resource
from extender.model.workloads import Namespace
from tests.builders import ZONE, NodeBuilder, Object, PodBuilder, make_namespace, make_node, make_pod
from tests.plugins.hint_case import helped, node_change_helps, pod_change_helps
from tests.queue.queueing import info

WEB = {"app": "web"}


def other(**labels: str) -> PodBuilder:
    return make_pod("other").node("n1").label(**labels)


def zoned(zone: str = "") -> NodeBuilder:
    return make_node("n1").zone(zone) if zone else make_node("n1")


NEAR_WEB = make_pod("p").affinity(ZONE, labels=WEB)
WEB_NEAR_WEB = make_pod("p").label(WEB).affinity(ZONE, labels=WEB)


FAR_FROM_WEB = make_pod("p").anti_affinity(ZONE, labels=WEB)


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(NEAR_WEB, None, other(app="web"), True, id="one to be near comes"),
        pytest.param(NEAR_WEB, None, other(app="db"), False, id="another pod comes"),
        pytest.param(NEAR_WEB, None, make_pod("other").label(WEB), False, id="comes without a place"),
        pytest.param(NEAR_WEB, None, other(app="web").namespace("elsewhere"), False, id="comes in another namespace"),
        pytest.param(NEAR_WEB, other(app="db"), other(app="web"), True, id="relabelled to match"),
        pytest.param(NEAR_WEB, other(app="web"), other(app="web", a="b"), False, id="matched before"),
        pytest.param(NEAR_WEB, other(app="web"), None, False, id="one to be near goes"),
        pytest.param(WEB_NEAR_WEB, other(app="web"), None, True, id="perhaps the last of its like goes"),
        pytest.param(WEB_NEAR_WEB, other(app="db"), None, False, id="not of its like"),
        pytest.param(WEB_NEAR_WEB, other(app="web"), other(app="db"), True, id="the last is relabelled"),
        pytest.param(FAR_FROM_WEB, other(app="web"), None, True, id="one to be far from goes"),
        pytest.param(FAR_FROM_WEB, other(app="db"), None, False, id="another pod goes"),
        pytest.param(FAR_FROM_WEB, other(app="web"), other(app="db"), True, id="relabelled to be harmless"),
        pytest.param(FAR_FROM_WEB, None, other(app="web"), False, id="one to be far from comes"),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=WEB).anti_affinity(ZONE, labels={"tier": "old"}),
            other(app="web", tier="old"),
            other(app="db"),
            True,
            id="harmless, and no longer matching the affinity",
        ),
        pytest.param(
            make_pod("p").label(WEB),
            other(app="db").anti_affinity(ZONE, labels=WEB),
            None,
            True,
            id="one that minds goes",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=WEB, namespaceSelector={"matchLabels": {"team": "a"}}),
            None,
            other(app="web").namespace("elsewhere"),
            True,
            id="namespaces by label may be any",
        ),
    ],
)
def test_inter_pod_affinity(pod: PodBuilder, old: PodBuilder | None, new: PodBuilder | None, expected: bool) -> None:
    assert pod_change_helps("InterPodAffinity", pod, old, new) is expected


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(NEAR_WEB, None, zoned("a"), True, id="a node with the key comes"),
        pytest.param(NEAR_WEB, None, zoned(), False, id="a node without it comes"),
        pytest.param(NEAR_WEB, zoned(), zoned("a"), True, id="gets the key"),
        pytest.param(NEAR_WEB, zoned("a"), zoned("b"), True, id="changes domains"),
        pytest.param(NEAR_WEB, zoned("a"), zoned("a").label(a="b"), False, id="gets another label"),
        pytest.param(NEAR_WEB, zoned("a"), zoned(), True, id="takes those to be near out of all domains"),
        pytest.param(make_pod("p"), None, zoned("a"), True, id="no pod that repels it is on a new node"),
        pytest.param(make_pod("p"), zoned("a"), zoned("b"), True, id="takes those that mind elsewhere"),
        pytest.param(make_pod("p"), zoned("a"), None, True, id="goes, with those that mind"),
        pytest.param(FAR_FROM_WEB, None, zoned(), True, id="any node comes, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned("a"), zoned(), True, id="loses the key, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned(), zoned("a"), False, id="gets the key, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned("a"), zoned("b"), True, id="changes domains, to be far from"),
        pytest.param(FAR_FROM_WEB, zoned("a"), zoned("a").label(a="b"), False, id="another label"),
    ],
)
def test_inter_pod_affinity_and_nodes(
    pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder | None, expected: bool
) -> None:
    assert node_change_helps("InterPodAffinity", pod, old, new) is expected


NEAR_TEAM = make_pod("p").affinity(ZONE, labels=WEB, namespaceSelector={"matchLabels": {"team": "a"}})


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(NEAR_TEAM, None, make_namespace("other", team="a"), True, id="one that a term may select comes"),
        pytest.param(NEAR_TEAM, make_namespace("other", team="a"), make_namespace("other"), True, id="new labels"),
        pytest.param(NEAR_TEAM, make_namespace("other"), make_namespace("other"), False, id="the same labels"),
        pytest.param(NEAR_WEB, None, make_namespace("other", team="a"), False, id="no term selects namespaces"),
        pytest.param(
            FAR_FROM_WEB, make_namespace("default", team="a"), make_namespace("default"), True, id="the pod's own"
        ),
    ],
)
def test_namespaces_that_terms_select(pod: PodBuilder, old: Object | None, new: Object, expected: bool) -> None:
    action = Action.ADD if old is None else Action.UPDATE
    before, after = (each and msgspec.convert(each, Namespace) for each in (old, new))
    assert helped("InterPodAffinity", info(pod), Resource.NAMESPACE, action, before, after) is expected
