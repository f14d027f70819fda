"""The command `extender`: one module for each subcommand.

Arguments come in; output, one line for each error, and an exit status go out. What takes long to import is imported
when a command runs. Begin with `main`.
"""
