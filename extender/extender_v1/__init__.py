"""The payloads of k8s.io/kube-scheduler/extender/v1, for both sides of a call.

Start with `types`. `decoding` reads requests; `encoding` checks an answer against its request and writes it. `client`
is the caller's side, used when the scheduler's own loop calls other extenders.
"""
