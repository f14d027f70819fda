"""Chooses the pods to evict so that a more important pod fits, and the node where evictions cost least.

The input is a profile, a pod, a table, and either the result of the pod's failed attempt (`preempt`) or the victims
that kube-scheduler has chosen (`process_preemption`). The output is candidates, each a node with its victims, and the
node to nominate.

Start with `evaluator.preempt`, whose dry run finds the victims on all nodes at once. `candidates` finds the pods that
may be evicted, sorts them, and picks the node.
"""

from extender.preemption.candidates import Candidate, candidates_of, evictable
from extender.preemption.evaluator import (
    NO_NODES,
    NOT_HELPFUL,
    Preemption,
    fit_message,
    leaving_victims,
    pod_terminating_by_preemption,
    preempt,
    preemption_message,
    process_preemption,
    rows_per_refusal,
    rows_without_lower_priority,
)

__all__ = [
    "NOT_HELPFUL",
    "NO_NODES",
    "Candidate",
    "Preemption",
    "candidates_of",
    "evictable",
    "fit_message",
    "leaving_victims",
    "pod_terminating_by_preemption",
    "preempt",
    "preemption_message",
    "process_preemption",
    "rows_per_refusal",
    "rows_without_lower_priority",
]
