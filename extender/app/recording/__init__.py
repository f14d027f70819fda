"""Observes the decisions of a process: remembers the last decisions, and records all if the settings say so.

Start with `observation`. It creates the observers, connects them with the cache, verbs, cycles and events of a process,
and runs `extender record`. `past_decisions` remembers the decisions that `extender explain --from` shows.
"""
