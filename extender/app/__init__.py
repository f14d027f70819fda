"""The composition roots: `serve` and `schedule` create all parts of a process, and start and stop them.

`feed` connects the cache to a cluster, `policies` reads the rules and reads them again when they change, `upkeep` and
`housekeeping` keep the cache current, and `loop` puts the scheduling loop together; tests build a loop of fakes with
the same function. No other room imports `cluster`. Start with `serve`.
"""
