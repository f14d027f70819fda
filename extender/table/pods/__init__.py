"""Stores pods in columns by slot; counts, by node, selector matches, affinity terms and host ports.

In: pods that are placed and removed. Out: counts, updated whenever a pod is placed or removed. Start at `columns`.
"""
