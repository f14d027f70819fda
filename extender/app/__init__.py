"""Creates, starts and stops all parts of a process: `serve` for the webhook, `schedule` for the scheduler.

`feed` connects the cache to a cluster, `policies` reads the rules and reads them again when they change, `upkeep` and
`housekeeping` keep the cache current, and `loop` puts the scheduling loop together; tests build a loop of fakes with
the same function. Besides it, only `offline.live` imports `cluster`. Start with `serve`.
"""
