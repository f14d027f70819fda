"""A decision about one pod: the nodes that can take it, the reasons of the others, the scores.

A Decision keeps the engine's arrays as they are; names and dictionaries are made when they are first read, so that a
decision over thousands of nodes costs no more than the engine's own work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from extender.framework.find_fit import Fit
from extender.framework.score import Scoring
from extender.framework.status import Refusal
from extender.model.pod import Pod
from extender.preemption import Preemption
from extender.table.labels import Rows

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PluginScore:
    """The scores of one priority, its numbers in the order of `Decision.feasible`: int64[len(feasible)] each.

    Attributes:
        plugin: its name.
        weight: how much it counts.
        raw: as its map gave it, in a unit of its own.
        normalised: brought to 0..100 by its reduce.
    """

    plugin: str
    weight: int
    raw: IntArray
    normalised: IntArray

    @property
    def weighted(self) -> IntArray:
        """The points that it adds to the total: `normalised * weight`."""
        return self.normalised * self.weight


class Decision:
    """The engine's decision about one pod over all nodes of a cluster.

    Attributes:
        pod: whom it was made for.
        preemption: where no node is feasible, what preemption would do: `candidates` (node -> victims, the most
            important first, and how many of them a PodDisruptionBudget protects), the `nominated_node`, the `reason`
            if there is none. None where a node is feasible.
    """

    def __init__(
        self, pod: Pod, node_names: Sequence[str], fit: Fit, scoring: Scoring, preemption: Preemption | None
    ) -> None:
        self.pod = pod
        self.preemption = preemption
        self._node_names, self._fit, self._scoring = node_names, fit, scoring

    def __repr__(self) -> str:
        return f"Decision({self.pod.key}: {len(self._scoring.rows)} of {len(self._fit.rows)} nodes feasible)"

    @cached_property
    def nodes(self) -> list[str]:
        """Every node that was looked at."""
        return self._named(self._fit.rows)

    @cached_property
    def feasible(self) -> list[str]:
        """The nodes that can take the pod."""
        return self._named(self._scoring.rows)

    @cached_property
    def refusals(self) -> dict[str, Refusal]:
        """Node -> what turned the pod down there first: `plugin`, `code`, `reasons`. An empty plugin means that plugins
        named the nodes that can do at all (upstream PreFilterResult), and this was none of them."""
        return {self._node_names[row]: refusal for row, refusal in self._fit.refused()}

    @cached_property
    def reasons(self) -> Counter[str]:
        """Reason -> on how many nodes it was given."""
        nodes = np.bincount(self._fit.cause[self._fit.cause >= 0], minlength=len(self._fit.refusals))
        counts: Counter[str] = Counter()
        for refusal, refused in zip(self._fit.refusals, nodes.tolist(), strict=True):
            counts.update({reason: refused for reason in refusal.reasons if refused})
        return counts

    @cached_property
    def scores(self) -> dict[str, PluginScore]:
        """Plugin -> what it gave. Priorities that had nothing to say are left out; they add nothing."""
        return {
            scored.plugin: PluginScore(scored.plugin, scored.weight, scored.raw, scored.scores)
            for scored in self._scoring.by_plugin
        }

    @property
    def total(self) -> IntArray:
        """The weighted sum over all plugins, in the order of `feasible`: int64[len(feasible)]."""
        return self._scoring.total

    @cached_property
    def best(self) -> list[str]:
        """The nodes with the highest total: the scheduler takes one of them at random."""
        if not len(self.total):
            return []
        return self._named(self._scoring.rows[self.total == self.total.max()])

    def _named(self, rows: Rows) -> list[str]:
        return [self._node_names[row] for row in rows.tolist()]


def fit_of(decision: Decision) -> Fit:
    """Returns the verdict on each node, as arrays; for this room alone."""
    return decision._fit
