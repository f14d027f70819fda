"""The plugins: one module or package each, with everything of it.

A module has the plugin's arguments, predicate, priority and queueing hints, and declares them in one value, `PLUGIN`;
a large plugin is a package of the same parts. `registry` lists the declarations in the order of the default profile.
`classic` has rules that only the classic `kind: Policy` names, `users` makes rules of users' functions. In come a pod
and the table, out go refusals, scores and the events that may help. Begin with `taint_toleration`; docs/adding-a-
plugin.md walks through a new one.
"""
