"""Stores the nodes in columns: resources, taints, labels, images and facts, one row for each node.

In: Node objects and the requests of pods. Out: arrays that rules index by row. `NodeColumns` is the entry point.
"""
