"""Kubernetes values as msgspec structs, decoded straight from bytes: only the fields that are used.

`meta` has what all objects share, `pod`, `node`, `volumes`, `devices` and `workloads` the kinds, and `kinds` the
table of those that are watched, with their paths. `quantity`, `requests`, `selectors` and `tolerations` read their
fields as Kubernetes does. Values are frozen: whoever has one may keep it. Begin with `meta` and `pod`.
"""
