"""Our decision on a case, through the library door."""

from __future__ import annotations

from dataclasses import replace

from extender import Cluster
from extender.engine import Decision
from extender.framework.profile import Profiles
from extender.plugins.registry import default_profile
from extender.policy.loading import read as policy
from extender.table.features import VERSIONS
from tests.builders import Object, stored
from tests.conformance.cases import VICTIM_GROUPS, kind_of
from tests.conformance.judge import Difference, differences
from tests.stock.build import MINOR


def decide(case: Object, version: str = MINOR) -> Decision:
    config = case.get("config")
    on = kind_of(case) == VICTIM_GROUPS
    features = replace(
        VERSIONS[version].features,
        generic_workload=on,
        topology_aware_workload_scheduling=on,
        composite_pod_group=on,
    )
    profiles = Profiles([default_profile()] if config is None else policy(config).profiles, features)
    return Cluster.from_objects(case["cluster"]["items"], profiles).decide(stored(case["pod"]))


def disagreements(case: Object, stock: Object, version: str = MINOR) -> list[Difference]:
    """Returns what we decide otherwise than kube-scheduler of this version.

    Where stock cannot decide there is nothing to compare, unless it is an error of PreFilter: then no node is feasible.
    """
    if "error" not in stock:
        # kube-scheduler takes the pods of a group that goes as a whole in the order of a Go map.
        by_uid = VERSIONS[version].features.behaviours.victims_by_uid and kind_of(case) != VICTIM_GROUPS
        return differences(case, stock, decide(case, version), by_uid=by_uid)
    if stock.get("prefilter", {}).get("code") != "Error":
        return []
    return [Difference("feasible", node, False, True) for node in decide(case, version).feasible]
