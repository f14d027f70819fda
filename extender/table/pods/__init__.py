"""Stores the placed pods in columns, and counts what they contribute to each node.

It counts the pods that match a selector, the affinity terms of pods, and the host ports in use. The counts are updated
whenever a pod is placed or removed. Start reading at `pod_columns`.
"""
