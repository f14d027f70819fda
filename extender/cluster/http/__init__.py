"""HTTP/1.1 to the API server and to other extenders, over kept connections of one kind.

`http1` is one connection and one response, `pool` keeps connections, `endpoint` opens them. `kube_client` calls the API
server with the `credentials` of the moment, `http_extender` calls another extender. Requests come in; bodies go out, or
Refused (nothing was done) and OutcomeUnknown (it may have been). Begin with `kube_client`.
"""
