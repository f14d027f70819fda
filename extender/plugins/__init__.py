"""Contains the plugins of the scheduler, one module each.

A plugin reads a pod and the table of the cluster. It refuses nodes, scores them, and names the events that may help a
refused pod.

A plugin's module has its arguments, predicate, priority and queueing hints. It declares them in one value, `PLUGIN`.
`registry` lists the plugins in the order of the default profile, and declares those without rules (DefaultPreemption).
`classic` has rules that only a classic `kind: Policy` can name. `users` turns functions of users into rules. Start with
`taint_toleration`; docs/adding-a-plugin.md walks through a new plugin.
"""
