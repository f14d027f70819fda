"""Kubernetes objects as msgspec structs, decoded from bytes. They have only the fields that are used.

Start with `meta`, the fields that all objects share, and `pod`. `node`, `volumes`, `devices` and `workloads` are the
other kinds; `kinds` lists those that are watched, with their paths. `quantity`, `requests` and `selectors` interpret
fields as Kubernetes does. All values are frozen, so anyone may keep a reference.
"""
