"""Devices for pods: structured parameters of dynamic resource allocation (KEP-4381), with v1.37's default gates.

In: a pod and a table. Out: `NodeClaims`, the outcome on each node, which DynamicResources filters and scores by, and
`DevicePlan`, the writes once a node is chosen. `pod_claims` finds the claims of a pod; `inventory` has the pools of
each node; `allocator` chooses devices; `allocations` keeps its results; `cel` evaluates selectors. Start reading at
`node_claims`.
"""
