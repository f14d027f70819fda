"""Answers questions about a cluster in memory: explains pending pods, simulates changes, and replays recordings.

Every answer is computed from a ClusterState, whose `engine` makes the decisions. Start reading at `cluster` and
`state`.
"""
