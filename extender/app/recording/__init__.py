"""Observes the decisions of a process: remembers the last ones, and records all if the settings ask for it.

`observation` creates the observers and connects them with a process's cache, verbs, cycles and events; it also runs
`extender record`. Start with it. `decisions` holds the remembered decisions, which `extender explain --from` shows.
"""
