"""Decides about a group of pods at once: all of them are placed, as far as the group's policy asks for it, or none.

In: a tree of groups with their waiting and scheduled members, a trial on a table, and a function that decides about one
member alone (the loop's cycle, the webhook's judge, or the simulation's). Out: a `GroupDecision`: the node or the
refusal of each member, and the status and text of each group in kube-scheduler's words. Start reading at
`algorithm.decide_group`. `placements` restricts a group to one topology domain and picks the best; `preemption` finds
pods to evict for a group; `decision` has the results.
"""

from extender.groups.algorithm import DecideOne, GroupRules, decide_group
from extender.groups.decision import GroupDecision, GroupStatus, MemberDecision, member_failure
from extender.groups.tree import Composite, Leaf, Tree

__all__ = [
    "Composite",
    "DecideOne",
    "GroupDecision",
    "GroupRules",
    "GroupStatus",
    "Leaf",
    "MemberDecision",
    "Tree",
    "decide_group",
    "member_failure",
]
