"""Simulations: the scheduler's own queue, cycle and preemption run on a copy of a cluster until nothing changes.

A `Scenario` (nodes to drain or add, workloads to scale or create) is applied to a copy of a ClusterState. The result
has the placements, the evictions, the pods left over, and the balance before and after. Nothing is written to a real
cluster. Start reading at `simulation`. `capacity`, `comparison` and `hypothetical` ask questions with it.
"""
