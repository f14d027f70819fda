"""Decides about a whole group of pods at once: places as many members as its policy requires, or none.

The input is a tree of groups with their waiting and scheduled members, a table on which placements are tried, and a
function that decides about one member alone. That function comes from the scheduler's loop, from the webhook, or from
the simulation. The output is a `GroupDecision`: a node or a reason for each member, and for each group a status and a
message in kube-scheduler's words. Start reading at `algorithm.decide_group`. `topology_placements` restricts a group to
one topology domain and picks the best domain; `group_preemption` finds pods to evict for a group; `decision` defines
the results.
"""

from extender.groups.algorithm import DecideOne, GroupRules, decide_group
from extender.groups.decision import GroupDecision, GroupStatus, MemberDecision, member_failure
from extender.groups.group_tree import Composite, Leaf, Tree

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
