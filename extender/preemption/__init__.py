"""Which pods would have to go so that another can come: victims on every node at once, and the node to prefer."""

from extender.preemption.candidates import Candidate, Candidates, candidates_of
from extender.preemption.eligibility import ineligibility
from extender.preemption.preempt import Preemption, preempt
from extender.preemption.revision import Revision, revise

__all__ = [
    "Candidate",
    "Candidates",
    "Preemption",
    "Revision",
    "candidates_of",
    "ineligibility",
    "preempt",
    "revise",
]
