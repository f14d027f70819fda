"""The priority that an API server accepts for a pod group."""

from __future__ import annotations

import msgspec
import pytest

from extender.errors import MalformedCluster
from extender.model.pod_groups import PodGroup
from extender.offline.manifests.companions import admitted
from tests.builders import make_pod_group
from tests.framework.cluster import table_of

CRITICAL = msgspec.convert(make_pod_group("g", 1, priorityClassName="system-node-critical"), PodGroup)


def test_a_group_may_have_the_priority_of_a_system_class_since_1_38() -> None:
    group = admitted(CRITICAL, table_of().objects, limits_priorities=False)
    assert isinstance(group, PodGroup)
    assert group.priority == 2_000_001_000


def test_before_1_38_the_priority_of_a_group_has_a_maximum() -> None:
    with pytest.raises(MalformedCluster, match=r"spec\.priority: expected at most 1000000000, got 2000001000"):
        admitted(CRITICAL, table_of().objects)
