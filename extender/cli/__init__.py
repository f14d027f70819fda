"""The command `extender`: a module for each subcommand, or for a few that are alike.

A command gets arguments, and gives output, one line for each error, and an exit status. Modules that take long to
import are imported when a command runs. Start reading at `main`.
"""
