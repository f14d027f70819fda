"""The API server, and other extenders over HTTP. The only room that imports `kubernetes`; only `app` imports it.

`http` has the connections and credentials, `watch` the reflectors that keep a sink equal to the cluster, `election` the
lease, `writers` everything that is written. In come lists, watches and answers; out go objects for a cache, and errors
that say whether a call may have taken effect. Begin with `http.kube_client`, then `watch.list_watch_state`.
"""
