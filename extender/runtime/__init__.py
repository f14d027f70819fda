"""Parts that every process needs: clock, threads, memory, unsettled writes, YAML and the protocols between rooms.

It is below every room but `errors`, and imports nothing else of the package. Start with `ports`.
"""
