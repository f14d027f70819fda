"""Allocates devices to pods (dynamic resource allocation, KEP-4381, with v1.37's default gates).

In: a pod and a table. Out: `NodeClaims`, the result on each node, which DynamicResources uses to filter and score, and
`DevicePlan`, the claims to write once a node is chosen. `pod_claims` finds the claims of a pod; `inventory` has the
pools of each node; `allocator` chooses devices; `allocations` caches its results; `cel` evaluates selectors. Start
reading at `node_claims`.
"""
