"""Simulates scheduling on a copy of a cluster, with the scheduler's own queue, scheduling cycle and preemption.

A `Scenario` (nodes to drain or add, workloads to scale or create) is applied to a copy of a ClusterState. The result
has the placements, the evictions, the pods without a node, and how balanced the nodes are before and after. Nothing is
written to a real cluster. Start reading at `simulation`. `capacity`, `comparison` and `hypothetical` run simulations to
answer further questions.
"""
