"""Finds the smallest changes that would let a pod run, and tries each one before it is suggested.

Start reading at `search`, which looks for the changes. `suggestion` defines what a change is. Every other file has one
kind of change: `smaller_requests`, `node_labels`, `taints`, `placement_rules`, `removed_pods`, `volume_claim_changes`,
`device_claims` and `new_nodes`.
"""
