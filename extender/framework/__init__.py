"""The interfaces of plugins, and the code that runs them.

The input is a pod and a table (the cluster as NumPy columns, with one row for each node). The output is refusals and
scores. Nothing here changes the cluster.

Start with `rules`, the interfaces of a predicate and a priority, then read `find_fit`, which runs the predicates of a
`profile`. `score` runs the priorities over the rows that fit. `plugin` is a plugin as the registry holds it. `events`
has cluster events and queueing hints: which waiting pods a change may help. The other modules are shared by plugins.
"""
