"""Taints and tolerations. Source: k8s.io/api core/v1 Toleration.ToleratesTaint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.model.node import Taint
from extender.model.pod import Toleration

NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE = "NoSchedule", "NoExecute", "PreferNoSchedule"
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Returns True if this one toleration covers the taint; an empty effect or key covers every one."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration], effects: Sequence[str]) -> list[Taint]:
    """The taints of these effects that no toleration covers, in the node's order."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]
