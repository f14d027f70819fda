"""Chooses the pods to evict so that a more important pod fits, and the node where evictions cost least.

The input is a profile, a pod, a table, and either the result of the pod's failed attempt (`preempt`) or the victims
that kube-scheduler has chosen (`process_preemption`). The output is candidates, each a node with its victims, and the
node to nominate.

Start with `evaluator.preempt`, whose dry run finds the victims on all nodes at once. `candidates` finds the pods that
may be evicted, sorts them, and picks the node.
"""
