"""Says what controllers, kubelets and drivers do, so that a simulated cluster changes as a real one would.

`replicas` says which pods a controller counts, deletes first and recreates. `workloads` finds a workload of the cluster
and the template of its pods. `fresh_nodes` creates nodes with all that comes with them, such as the pods of DaemonSets.
"""
