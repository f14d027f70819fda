"""Provides what every process needs: clock, threads, memory, unsettled writes, YAML, protocols between packages.

Of this project it imports only `errors`, and every other package may import it. Start with `ports`.
"""
