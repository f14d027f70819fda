"""Answers about a cluster in memory: the library's `Cluster`, explanations, simulations, recordings.

Every answer is made of a ClusterState, whose `engine` decides. Start reading at `cluster` and `state`.
"""
