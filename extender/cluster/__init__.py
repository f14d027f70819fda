"""Talks to the API server and to other extenders over HTTP.

Only this package imports `kubernetes`, and only `app` imports this package. `http` opens the connections and reads the
credentials. `watch` has the reflectors, which keep the cache equal to the cluster. `election` competes for the Lease.
`writers` makes all writes. Objects from lists and watches go to a cache, and an error says whether a call may have had
an effect. Start with `http.kube_client`, then `watch.list_watch_state`.
"""
