"""Reads the settings from a file, the environment and flags into one immutable `Settings` object.

`settings` defines all settings, reads them, and reports each fault with its location.
"""
