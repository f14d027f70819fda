"""Speaks HTTP/1.1 to the API server and to other extenders, over connections that stay open.

`exchange` is one connection and one response, `pool` reuses connections, `endpoint` opens them. `kube_client` calls the
API server with the current `credentials`; `http_extender` calls another extender. A call returns the response's body,
or raises Refused (it had no effect) or OutcomeUnknown (it may have had one). Start with `kube_client`.
"""
