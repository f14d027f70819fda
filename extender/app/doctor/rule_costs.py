"""The cost of the users' rules of a policy on the nodes of the cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from extender.app.doctor.finding import Finding, ok, warn
from extender.framework.profile import Profile
from extender.model.node import Node
from extender.model.pod import Pod
from extender.offline.state import ClusterState
from extender.plugins.users.predicate import CustomPredicate
from extender.plugins.users.priority import CustomPriority
from extender.plugins.users.tracing import described
from extender.table import PodInfo

_MOST_SECONDS = 0.1  # over all nodes; kube-scheduler waits for so long with every pod


def check_rule_costs(profiles: Sequence[Profile], nodes: Sequence[Node]) -> Iterator[Finding]:
    """Yields what each rule takes for a pod that asks for nothing, on all of these nodes."""
    state, pod = ClusterState(nodes), PodInfo(Pod())
    rules = {
        rule.name: rule
        for profile in profiles
        for rule in (*profile.predicates, *(each.priority for each in profile.priorities))
        if isinstance(rule, CustomPredicate | CustomPriority)
    }
    for name, rule in rules.items():
        began = time.perf_counter()
        try:
            if isinstance(rule, CustomPredicate):
                rule.prepare(pod, state.table).refuse(state.table.nodes.rows)
            else:
                rule.prepare(pod, state.table, state.table.nodes.rows)
        except Exception as error:  # whatever a user's code may raise
            yield warn(
                "rule-cost", f"{name} fails for an empty pod: {described(error)}", "try it: `extender rule test`"
            )
            continue
        seconds = time.perf_counter() - began
        message = f"{name} takes {seconds * 1e6 / len(nodes):.1f} us a node, {seconds * 1e3:.1f} ms on all {len(nodes)}"
        if seconds > _MOST_SECONDS:
            yield warn("rule-cost", message, "have it look at all nodes at once, by columns (docs/rules.md)")
        else:
            yield ok("rule-cost", message)
