"""Settings: a file, the environment and flags become one frozen value.

`settings` is the table of all settings, `sources` reads them and reports each fault with its place. Start with
`settings`.
"""
