"""Nodes as columns: resources, taints, labels, images and facts, by row.

In: Node objects and what pods request. Out: arrays that rules index by rows; `NodeColumns` is the way in.
"""
