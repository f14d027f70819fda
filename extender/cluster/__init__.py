"""Talks to the API server and to other extenders over HTTP.

Only this package imports `kubernetes`, and only `app` imports this package. `http` has the connections and credentials,
`watch` the reflectors that keep the cache equal to the cluster, `election` the Lease, and `writers` all writes. Lists,
watches and responses come in; objects go to a cache, and errors say whether a call may have had its effect. Start with
`http.kube_client`, then `watch.list_watch_state`.
"""
