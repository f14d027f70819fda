"""Elects a leader among the replicas with a Lease. Only the leader writes to the API server.

`election` is client-go's algorithm as a state machine, and `elector` runs this machine in a thread. `lease` reads and
writes the Lease; its `Fence` checks before a write that this process leads. `leader_service` points a Service at the
leader. Start with `election`.
"""
