"""Defines the Kubernetes objects as msgspec structs, which are decoded from bytes. They have only the fields in use.

Start with `meta`, which has the fields that all objects share, and `pod`. `node`, `storage`, `devices` and `workloads`
define the other kinds. `kinds` lists the watched kinds with their paths. `quantity`, `requests` and `selectors`
interpret fields as Kubernetes does. All values are immutable, so any code may keep a reference to them.
"""
