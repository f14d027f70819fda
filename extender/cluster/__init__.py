"""The API server, and other extenders over HTTP. Only this room imports `kubernetes`, and only `app` imports this room.

`http` has the connections and credentials, `watch` the reflectors that keep a sink equal to the cluster, `election` the
Lease, and `writers` everything that is written. Lists, watches and responses come in; objects go to a cache, and errors
say whether a call may have had its effect. Start with `http.kube_client`, then `watch.list_watch_state`.
"""
