"""The output option of every command, and the ways to print, select and sort what it shows.

Start reading at `formats`.
"""
