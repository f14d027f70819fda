"""Elects a leader among the replicas with a Lease. Only the leader writes to the API server.

`election` is client-go's algorithm as a state machine. `elector` runs this machine in a thread, and points a Service at
the leader. `lease` reads and writes the Lease; its `Fence` checks before a write that this process leads. Start with
`election`.
"""
