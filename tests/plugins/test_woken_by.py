"""`woken_by` of a user's rule: the declared events wake its pods; without a declaration any event does."""

from __future__ import annotations

import pytest

from extender import predicate
from extender.framework.cluster_events import Action, ClusterEvent, Resource
from extender.framework.profile import Profile
from extender.framework.queueing_hints import QueueingHints
from extender.plugins.registry import interests_of
from extender.plugins.users.rule_calls import OfflineHost
from extender.table.features import Behaviours

NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)


def refuses(pod: object, node: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("woken_by", "event", "wakes"),
    [
        pytest.param({"Node": "Add|UpdateNodeLabel"}, NODE_LABEL, True, id="declared"),
        pytest.param({"Node": "Add|UpdateNodeLabel"}, NODE_ADDED, True, id="declared beside it"),
        pytest.param({"Node": "Add|UpdateNodeLabel"}, POD_GONE, False, id="not declared"),
        pytest.param(None, POD_GONE, True, id="nothing declared"),
    ],
)
def test_woken_by_names_the_events(woken_by: dict[str, str] | None, event: ClusterEvent, wakes: bool) -> None:
    rule = predicate(woken_by=woken_by)(refuses) if woken_by else predicate(refuses)
    made = rule.rule("rules:mine", {}, OfflineHost())
    hints = QueueingHints(interests_of([Profile("mine", [made], [])], Behaviours()), lambda _: None)
    assert bool(hints.interests("rules:mine", event)) is wakes


def test_in_tree_plugins_keep_their_interests() -> None:
    hints = QueueingHints(interests_of([Profile("mine", [], [])], Behaviours()), lambda _: None)
    assert not hints.interests("NodeName", POD_GONE)
