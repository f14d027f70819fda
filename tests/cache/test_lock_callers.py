"""Each operation waits for the cache's lock under a name of its own, which is a label of the metric."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.model.pod import Pod
from extender.model.pod_groups import PodGroup
from extender.table import PodInfo
from tests.builders import make_node, make_pod, make_pod_group
from tests.verbs.cluster import cache_of

POD = msgspec.convert(make_pod("p").uid("p").group("g").obj(), Pod)
GROUP = msgspec.convert(make_pod_group("g", 1), PodGroup)


@pytest.mark.parametrize(
    ("callers", "operation"),
    [
        ("watch", lambda cache: cache.changed("Pod", POD)),
        ("info_of", lambda cache: cache.info_of(POD)),
        ("find_pod", lambda cache: cache.find_pod("p", POD.key)),
        ("placement", lambda cache: cache.placement("p")),
        ("assume", lambda cache: cache.assume(PodInfo(POD), "n")),
        ("ask assume", lambda cache: cache.assume(PodInfo(POD), "n", lambda _: None)),
        ("assume_all", lambda cache: cache.assume_all([(PodInfo(POD), "n", ())], lambda uids: uids)),
        ("nominate", lambda cache: cache.nominate("p", "n")),
        ("nominated_node", lambda cache: cache.nominated_node("p")),
        ("observed", lambda cache: cache.observed("Node", "n")),
        ("restore_object", lambda cache: cache.restore_object("Node", "n")),
        ("effective", lambda cache: cache.effective("Node", "n")),
        ("size", lambda cache: cache.size()),
        ("overview", lambda cache: cache.overview()),
        ("unconfirmed", lambda cache: cache.unconfirmed()),
        ("objects", lambda cache: cache.objects("Node")),
        ("pods", lambda cache: cache.pods()),
        ("cursor", lambda cache: cache.cursor()),
        ("filter", lambda cache: cache.snapshot("filter").__enter__()),
        ("check_tables", lambda cache: cache.check_tables(lambda _, __: True, lambda: None)),
        ("refresh", lambda cache: cache.refresh(2)),
        ("group_find", lambda cache: cache.groups.find("default/g")),
        ("group_count", lambda cache: cache.groups.count("default/g")),
        ("group_path", lambda cache: cache.groups.path("default/g")),
        ("group_family", lambda cache: cache.groups.family("default/g")),
        ("group_waiting", lambda cache: cache.groups.is_waiting("default/g", "p")),
        ("group", lambda cache: cache.groups.get("default/g")),
        ("group_root", lambda cache: cache.groups.root_of("default/g")),
        ("group_root", lambda cache: cache.groups.root_above(GROUP)),
        ("group_version", lambda cache: cache.groups.use(tries_deep_trees=True)),
        ("group_shortage", lambda cache: cache.groups.shortage("default/g")),
    ],
)
def test_an_operation_waits_for_the_lock_under_its_name(callers: str, operation: Callable[[Cache], object]) -> None:
    cache = cache_of(make_node("n").allocatable(cpu="2", memory="4Gi", pods="10").obj(), make_pod_group("g", 1))
    cache.changed("Pod", POD)
    with cache.snapshot("test"):
        pass
    cache._locked._managers.clear()
    operation(cache)
    assert set(cache._locked._managers) == set(callers.split())
