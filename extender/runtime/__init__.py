"""Provides what every process needs: clock, threads, memory, YAML, unsettled writes, and shared protocols.

It imports only `errors` from this project, and every other package may import it. Start with `ports`.
"""
