"""The command `extender`: a module for each subcommand, or for a few that are alike.

Arguments come in; output, one line for each error, and an exit status go out. What takes long to import is imported
when a command runs. Begin with `main`.
"""
