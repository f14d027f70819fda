"""Pods as columns by slot, and what rules count of them by node: matches of selectors, affinity terms, host ports.

In: pods that are placed and taken away. Out: standing counts, which each such pod changes by one. Begin with `columns`,
then `matches`.
"""
