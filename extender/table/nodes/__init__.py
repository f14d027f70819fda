"""Stores the nodes in columns: resources, taints, labels, images and facts, one row for each node.

The table updates the columns when a node changes and when a pod is placed or removed. Rules read the arrays by row.
Start reading at `NodeColumns`.
"""
