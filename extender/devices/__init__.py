"""Allocates devices to pods (dynamic resource allocation, KEP-4381, with v1.37's default gates).

Given a pod and a table, `NodeClaims` finds the devices on each node; DynamicResources uses it to filter and score. Once
a node is chosen, `DevicePlan` lists the claims to write. `pod_claims` finds the claims of a pod; `inventory` has the
pools of each node; `allocator` chooses devices; `allocations` caches the outcomes, and compares a plain request with
all nodes at once; `cel` evaluates selectors. Start reading at `pod_claims.NodeClaims`. `policies` scores nodes and
devices, for DeviceScoring and for experiments.
"""
