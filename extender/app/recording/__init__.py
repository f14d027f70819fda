"""Observes the decisions of a process: remembers the last ones, and records all of them if asked.

`observation` makes the observers from the settings and connects them with a process's cache, verbs, cycles and events;
it also runs `extender record`. Begin with it. `decisions` is the memory behind `extender explain --from`.
"""
