"""The payloads of k8s.io/kube-scheduler/extender/v1, from both ends.

In: bytes of requests, or of other extenders' answers. Out: checked values, and bytes with Go's names. Begin with
`types`, then `decoding` and `encoding`, which holds an answer against its request; `client` is the caller's
side, for extenders that the scheduler's own loop asks.
"""
