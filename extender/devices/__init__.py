"""Devices for pods: structured parameters of dynamic resource allocation (KEP-4381), with v1.37's default gates.

In: a pod and a table. Out: `NodeClaims`, the outcome on each node, which DynamicResources filters and scores by, and
`DevicePlan`, the writes once a node is chosen. `claims` are the pod's; `inventory` has the pools of each node;
`allocator` finds the devices; `allocations` keeps what it found; `cel` evaluates selectors. Begin with `node_claims`.
"""
