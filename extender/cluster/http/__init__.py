"""Speaks HTTP/1.1 to the API server and to other extenders, over connections that stay open.

`exchange` sends one request and reads one response, and `pool` opens connections and reuses them. `kube_client` calls
the API server with the current `credentials`; `http_extender` calls another extender. A call returns the response's
body. A failed call raises Refused if it had no effect, and OutcomeUnknown if it may have had an effect. Start with
`kube_client`.
"""
