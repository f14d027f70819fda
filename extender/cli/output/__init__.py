"""Prints the answers of commands in the format of `-o`, and selects and sorts what they show.

Start with `output_formats`.
"""
