"""The smallest changes that would let a pod run. The engine decides each again before it is suggested.

`search` looks for them and is where to start reading. `suggestion` has what a change is. Every other file is one kind
of change, complete: `smaller_requests`, `node_labels`, `taints`, `placement_rules`, `removed_pods`, `volume_claims`,
`device_claims` and `new_nodes`.
"""
