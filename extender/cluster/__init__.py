"""Talks to the API server and to other extenders over HTTP.

Only this package imports `kubernetes`; only `app` and `offline.live` import this package. Connections stay open: `pool`
opens and reuses them, and sends one HTTP/1.1 request at a time over each. `kube_client` calls the API server with the
current `credentials`; `http_extender` calls another extender. A failed call raises Refused if it had no effect, and
OutcomeUnknown if it may have had an effect.

`watch` has the reflectors, which deliver the objects of lists and watches to the cache. `election` competes for the
Lease, and points a Service at the leader. All other writes: `binder` writes Bindings, claims and volumes, `statuses`
statuses and evictions, and `events` Events. Each implements a protocol of `scheduler_ports` or `runtime.ports`, and
sends UIDs as preconditions. Statuses and Events wait in an `outbox`, which limits their rate. Start with `kube_client`,
then `watch.list_watch_state`.
"""
