"""The form of a plugin, and the running of plugins.

`rules` says what a predicate and a priority are, `plugin` what a registry holds of one, `profile` which of them
decide. `find_fit` runs a profile's predicates over rows of the table and gives a `fit`; `score` runs its priorities
over the rows that fit. `events` has cluster events and queueing hints, by which the queue knows whom a change may
help. The rest is what several plugins share. In come a pod and a table, out go refusals and scores; nothing here
changes anything. Begin with `rules`, then read `find_fit`.
"""
