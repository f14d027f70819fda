"""Speaks HTTP/1.1 to the API server and to other extenders, over connections that stay open.

`pool` opens connections, reuses them, and sends one request at a time over each. `kube_client` calls the API server
with the current `credentials`; `http_extender` calls another extender. A call returns the response's body. A failed
call raises Refused if it had no effect, and OutcomeUnknown if it may have had an effect. Start with `kube_client`.
"""
