"""The command `extender`: one module for each subcommand."""
