"""Pods as columns by slot, and the counts by node that rules read: matches of selectors, affinity terms, host ports.

In: pods that are placed and removed. Out: counts that each such pod updates. Start at `columns`.
"""
