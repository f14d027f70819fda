"""Reads and writes the JSON of the extender protocol (k8s.io/kube-scheduler/extender/v1), for both sides of a call.

Start with `messages`, which reads requests, checks an answer against its request, and writes it. `client` implements
the caller's side, which the scheduling loop uses to call other extenders.
"""
