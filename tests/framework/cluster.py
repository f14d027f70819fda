"""Builds tables from API objects, and runs one rule on them; the results are by node name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from extender.framework.find_fit import find_fit, score
from extender.framework.profile import Profile, WeightedPriority
from extender.framework.rules import Predicate, Priority
from extender.framework.status import Refusal
from extender.model.kinds import KINDS
from extender.model.node import Node
from extender.model.pod import Pod
from extender.table import PodInfo, Table
from extender.table.features import VERSIONS, FeatureGates
from tests.builders import Object


def pod_info(obj: Object) -> PodInfo:
    """Converts a pod for the engine."""
    return PodInfo(msgspec.convert(obj, Pod))


def table_of(*objects: Object, features: FeatureGates = VERSIONS["1.37"].features) -> Table:
    """Builds a table of the objects; pods with a node are placed, pods with a nominated node are nominated."""
    table = Table(features)
    for obj in objects:
        known = msgspec.convert(obj, KINDS[obj["kind"]].type)
        if isinstance(known, Node):
            table.set_node(known)
        elif isinstance(known, Pod):
            if known.node_name:
                table.place(PodInfo(known), known.node_name)
            elif known.status.nominated_node_name:
                table.nominate(PodInfo(known), known.status.nominated_node_name)
        else:
            table.set_object(obj["kind"], known)
    return table


def refusals(
    predicates: Predicate | Sequence[Predicate],
    pod: Object,
    *objects: Object,
    features: FeatureGates = VERSIONS["1.37"].features,
) -> dict[str, Refusal]:
    """Returns node name -> refusal of each node that cannot take the pod."""
    rules = predicates if isinstance(predicates, Sequence) else [predicates]
    table = table_of(*objects, features=features)
    fit = find_fit(Profile("test", rules, ()), pod_info(pod), table, table.nodes.rows)
    return {table.nodes.names[row]: refusal for row, refusal in fit.refused()}


def scores(priority: Priority, pod: Object, *objects: Object, raw: bool = False) -> dict[str, int]:
    """Returns node name -> normalised (or raw) score; empty if the priority does not apply to the pod."""
    table = table_of(*objects)
    scoring = score(Profile("test", (), [WeightedPriority(priority)]), pod_info(pod), table, table.nodes.rows)
    if not scoring.by_plugin:
        return {}
    values = scoring.by_plugin[0].raw if raw else scoring.by_plugin[0].scores
    names = np.array(table.nodes.names)[table.nodes.rows]
    return dict(zip(names.tolist(), values.tolist(), strict=True))
