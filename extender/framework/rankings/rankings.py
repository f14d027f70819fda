"""The nodes' ranking for one pod template, kept from one replica to the next.

What a bind changes is one row and the domains it touches. So the rules that look at a node by itself (`rules.PerNode`)
are asked again only about rows that have changed since the last replica; the others, about topology domains, volumes,
devices, and those of users, are asked anew for each pod, about the nodes that are left. The best nodes are the same as
those of `find_fit` and `score`. Where that cannot be told here, there is no answer, and those two are asked.
"""

from __future__ import annotations

from extender.errors import RuleFailed
from extender.framework.profile import Profile
from extender.framework.rankings.ranking import Best, Ranking, prepared
from extender.framework.rules import PerNode
from extender.table import PodInfo, Table
from extender.table.podinfo import Group
from extender.table.pods.templates import of_one_template

_MOST_KEPT = 128


class Rankings:
    """The rankings of one profile's templates on one table at a time."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._table: Table | None = None
        self._kept: dict[Group, tuple[PodInfo, Ranking | None]] = {}

    def best(self, pod: PodInfo, table: Table) -> Best | None:
        """Returns the best nodes for the pod; None: it must be decided without a ranking.

        Pods with volumes, claims or a nominated pod in their way have none, nor has the first pod of a template.

        Raises:
            RuleFailed: a rule of the user's raised.
        """
        if table.nominated or pod.volumes or pod.pod.spec.resource_claims:
            return None
        if table is not self._table:
            self._table, self._kept = table, {}
        ranking = self._ranking(pod, table)
        return None if ranking is None else ranking.best(pod)

    def _ranking(self, pod: PodInfo, table: Table) -> Ranking | None:
        first, ranking = self._kept.pop(pod.group, (None, None))
        if first is None or not of_one_template(first.pod, pod.pod):
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]  # unasked for the longest
            self._kept[pod.group] = pod, None  # perhaps no other pod is like it
            return None
        if ranking is None or not ranking.follow():
            ranking = _ranking_of(self._profile, first, table)
        self._kept[pod.group] = first, ranking
        return ranking


def _ranking_of(profile: Profile, pod: PodInfo, table: Table) -> Ranking | None:
    """Returns a new ranking; None where a rule turns the pod down everywhere, or names its nodes, or cannot tell."""
    checks = prepared([each for each in profile.predicates if isinstance(each, PerNode)], pod, table)
    scorers = []
    try:
        for each in profile.priorities:
            scorer = each.priority.prepare(pod, table, table.nodes.rows) if isinstance(each.priority, PerNode) else None
            if scorer is not None:
                scorers.append((scorer, each.weight))
    except RuleFailed:
        return None
    return None if checks is None else Ranking(profile, table, [check for _, check in checks], scorers)
