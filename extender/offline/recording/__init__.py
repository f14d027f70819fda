"""Recordings: everything that a process's cache has learnt and that was decided on it, and the same decided again.

The seam is the journal of the cache: each change has a number, its moment, and each call and attempt names the moment
of the table that it was decided on. So a replay needs no luck with threads: it brings a table to that moment and asks
the same verb or scheduling cycle again. In come the entries of a running process (`recorder`, `observers`), out goes a
file of lines (`lines` has the format, `encoding` makes them); `reading` reads it back, step by step, and
`replay` decides again and tells what differs. Begin with `lines`.
"""
