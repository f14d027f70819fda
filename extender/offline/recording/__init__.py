"""Records every change of a process's cache and every decision, and decides again.

The cache's journal makes this possible: it numbers each change (its moment), and each call and attempt is recorded with
the moment of the table that it was decided on. A replay brings a table to that moment and asks the same verb or
scheduling cycle again, so that the order in which threads ran does not matter.

In: the changes and decisions of a running process (`observers`, `recorder`). Out: a file of lines (`lines` has the
format, `encoding` makes them). `reading` reads the file step by step, and `replay` decides again and reports
differences. Begin with `lines`.
"""
