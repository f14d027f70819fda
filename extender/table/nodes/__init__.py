"""Nodes as columns: resources, taints, labels, images and facts, by row.

In: Node objects and the requests of pods. Out: arrays that rules index by row. `NodeColumns` is the entry point.
"""
