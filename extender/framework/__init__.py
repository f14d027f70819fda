"""Defines the interfaces of plugins, and runs plugins.

The input is a pod and a table (the cluster as NumPy columns, with one row for each node). The output is refusals and
scores. This package does not change the cluster.

Start with `rules`, which has the interfaces of predicates and priorities. Then read `find_fit`, which runs the
predicates of a `profile`, and the priorities over the rows that fit. `plugin` describes a plugin for the registry.
`cluster_events` lists what may change, and `queueing_hints` finds the waiting pods that a change may help. The other
modules are shared by plugins.
"""
