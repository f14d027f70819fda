"""The command `extender`. Each module has one subcommand, or several that are similar.

A command prints its output, and one line for each error, and ends with an exit status. Modules that are slow to import
are imported only when a command runs. Start with `main`.
"""
