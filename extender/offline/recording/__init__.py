"""Reads a recording and makes its decisions again.

`reading` reads the file step by step, and `replay` makes the decisions again and reports differences. `upgrade`
compares the decisions under two versions of Kubernetes. Start with `reading`; `extender.recording` defines the file.
"""
