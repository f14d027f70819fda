"""Creates, starts and stops all parts of a process: `serve` for the webhook, `schedule` for the scheduler.

`feed` connects the cache to a cluster, and `upkeep` keeps it current. `policies` reads the rules, and reads them again
when they change. `observation` connects the observers of decisions and the recorder. `loop` puts the scheduling loop
together; tests use the same function with fakes. Only this package and `offline.live` import `cluster`. Start with
`serve`.
"""
