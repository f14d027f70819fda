"""Defines the Kubernetes objects as msgspec structs, which are decoded from bytes. They have only the fields in use.

Start with `meta`, the fields that all objects share, and `pod`. `node`, `volumes`, `devices` and `workloads` are the
other kinds; `kinds` lists those that are watched, with their paths. `quantity`, `requests` and `selectors` interpret
fields as Kubernetes does. All values are immutable, so any code may keep a reference to them.
"""
