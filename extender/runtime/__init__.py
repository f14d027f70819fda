"""The parts of any process: clock, ticker, lock, memory, YAML of users, near names, and the protocols between rooms.

Below everything but `errors`; it imports nothing of the package. Begin with `ports`.
"""
