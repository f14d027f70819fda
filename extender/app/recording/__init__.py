"""Observes the decisions of a process. It remembers the latest, and records all if the settings say so.

`observation` creates the observers, and connects them with the cache, verbs, cycles and events of a process; it also
runs `extender record`. Start with it. `decisions` remembers decisions, which `extender explain --from` shows.
"""
