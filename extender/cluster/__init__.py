"""Talks to the API server and to other extenders over HTTP.

Only this package imports `kubernetes`; only `app` and `offline.live` import this package. `http` opens the connections
and reads the credentials. `watch` has the reflectors, which deliver the objects of lists and watches to the cache.
`election` competes for the Lease, and points a Service at the leader. `writers` makes the other writes. A failed call
raises Refused if it had no effect, and OutcomeUnknown if it may have had an effect. Start with `http.kube_client`, then
`watch.list_watch_state`.
"""
