"""Simulations: the production queue, cycle and preemption run on a copy of a cluster, until nothing moves.

In comes a ClusterState and a Scenario (nodes to drain or add, workloads to scale or create); out comes a Simulation's
result with placements, evictions, what is left over, and the balance before and after. Nothing is written to a cluster.
Begin reading at `simulation`; `capacity` and `comparison` are questions asked by means of it.
"""
