"""Records every change of a process's cache and every decision, and can make the decisions again.

The cache's journal makes this possible. It numbers each change; this number is called a moment. Each call and attempt
is recorded with the moment of the table that it was decided on. A replay applies the changes up to that moment to a
table and runs the same verb or scheduling cycle again, so that the order in which threads ran does not matter.

In: the changes and decisions of a running process (`observers`, `recorder`). Out: a file of lines (`lines` has the
format, `encoding` makes them). `reading` reads the file step by step, and `replay` decides again and reports
differences. Begin with `lines`.
"""
