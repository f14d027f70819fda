"""NodeAffinity: the events that may help."""

from __future__ import annotations

import pytest

from extender.framework.cluster_events import Action
from tests.builders import NodeBuilder, PodBuilder, expression, make_node, make_pod, node_term
from tests.plugins.hint_case import node_change_helps

ON_SSD = make_pod("p").require_node(node_term(expression("disk", "In", "ssd")))


ON_N1 = make_pod("p").require_node(node_term(fields=[expression("metadata.name", "In", "n1")]))


def built(name: str = "n1") -> NodeBuilder:
    return make_node(name)


@pytest.mark.parametrize(
    ("pod", "old", "new", "expected"),
    [
        pytest.param(make_pod("p").node_selector(disk="ssd"), None, built().label(disk="ssd"), True, id="selected"),
        pytest.param(make_pod("p").node_selector(disk="ssd"), None, built(), False, id="not selected"),
        pytest.param(ON_SSD, None, built().label(disk="ssd"), True, id="affinity"),
        pytest.param(ON_SSD, built(), built().label(disk="ssd"), True, id="labelled"),
        pytest.param(ON_SSD, built().label(disk="ssd"), built().label(disk="ssd", a="b"), False, id="matched before"),
        pytest.param(ON_SSD, built().label(disk="ssd"), built().label(disk="hdd"), False, id="no longer"),
        pytest.param(ON_N1, None, built("n1"), True, id="by name"),
        pytest.param(ON_N1, None, built("n2"), False, id="another name"),
        pytest.param(make_pod("p").require_node({}), None, built(), False, id="an empty term matches nothing"),
        pytest.param(make_pod("p").node_selector(disk="ssd").require_node({}), None, built(), False, id="both must"),
    ],
)
def test_node_affinity(pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder, expected: bool) -> None:
    assert node_change_helps("NodeAffinity", pod, old, new, Action.UPDATE_NODE_LABEL) is expected
