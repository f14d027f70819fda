"""Makes all writes to the API server: bindings, evictions, statuses, events, claims and volumes.

Each writer implements a protocol of `scheduler_ports` or `runtime.ports`, and sends UIDs as preconditions. It returns
the written object, or raises a ClusterError. Statuses and events wait in an `outbox`, which limits their rate. Start
with `binder`.
"""
