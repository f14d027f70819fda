"""Preemption: the pods that have to leave a node so that a more important one fits, and the node that costs least.

In: a profile, a pod, a table, and the fit of the pod's failed attempt (`preempt`), or the victims that a scheduler has
chosen itself (`process_preemption`). Out: candidates, each a node with its victims, and the node to nominate. It reads
as upstream's preemption.go does: `evaluator` is the story, `dry_run` finds the victims on all nodes at once,
`candidates` says who may go, in what order, and picks one node. Begin with `evaluator.preempt`.
"""

from extender.preemption.candidates import Candidate, Candidates, candidates_of
from extender.preemption.evaluator import (
    NOT_HELPFUL,
    Preemption,
    ProcessedPreemption,
    pod_ineligible_to_preempt_others,
    pod_terminating_by_preemption,
    preempt,
    process_preemption,
)

__all__ = [
    "NOT_HELPFUL",
    "Candidate",
    "Candidates",
    "Preemption",
    "ProcessedPreemption",
    "candidates_of",
    "pod_ineligible_to_preempt_others",
    "pod_terminating_by_preemption",
    "preempt",
    "process_preemption",
]
