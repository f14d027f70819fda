"""Stores the placed pods in columns, and counts what they contribute to each node.

The counts are of pods that match a selector, affinity terms and host ports. They are updated whenever a pod is placed
or removed. Start reading at `columns`.
"""
