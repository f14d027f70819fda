"""Settings: a file, the environment and flags become one frozen value.

`settings` is the one table of all settings, `sources` reads them, each later source winning, and names every fault with
its place. Begin with `settings`.
"""
