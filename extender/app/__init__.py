"""The composition roots: `serve` and `schedule` plug everything together, start it and stop it, in one place each.

Settings come in; processes go out. `feed` fills their cache, `policies` reads their rules, `readiness` and
`housekeeping` look after the cache, `loop` composes the scheduling loop, of which tests make one of fakes. The only
room that imports `cluster`. Begin with `serve`.
"""
