"""Stores the nodes in columns: resources, taints, labels, images and facts, one row for each node.

The table writes Node objects and the requests of pods. Rules read the arrays by row. Start reading at `NodeColumns`.
"""
