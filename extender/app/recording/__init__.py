"""The observers of a process's decisions, and the process that does nothing but record.

Settings come in; `observation` makes the recorder, and gives a process the parts that tell it what happens: its cache's
journal, its verbs, cycles and events. `observation` has the composition root of `extender record` too. Begin with it.
"""
