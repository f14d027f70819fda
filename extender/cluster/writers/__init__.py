"""Everything that is written to the API server: bindings, evictions, statuses, events, claims, volumes.

Each writer implements a protocol of `scheduler.ports` or `runtime.ports` and names UIDs as preconditions. Decisions
come in; what the API server made of them goes out as an object or a ClusterError. Statuses and events go through
`outbox`, at the pace of `pacing`. Begin with `binder`.
"""
