"""Decides where a pod can run, and says why it cannot run elsewhere, in the real or in a hypothetical cluster.

Start with `decide`: it is the only place where the nominated node, filters, scores and preemption are put together, and
everything that decides about a pod calls it: the scheduling loop, pod groups, the offline answers, a replay. `decision`
defines what it returns. `engine` is the door for the offline answers, the pages and users of the library.
"""

from extender.engine.decision import Decision, PluginScore, RefusedNodes
from extender.engine.engine import DecisionLimit, Engine, quantities_of, rule_errors

__all__ = [
    "Decision",
    "DecisionLimit",
    "Engine",
    "PluginScore",
    "RefusedNodes",
    "quantities_of",
    "rule_errors",
]
