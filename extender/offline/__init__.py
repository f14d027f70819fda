"""Answers questions about a cluster in memory: the library's `Cluster`, explanations, simulations, recordings.

Every answer is computed from a ClusterState, whose `engine` makes the decisions. Start reading at `cluster` and
`state`.
"""
