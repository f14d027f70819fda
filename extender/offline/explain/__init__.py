"""Explains, with numbers, why a pod is pending, and finds the smallest change that would let it run.

An `Explanation` is made from a ClusterState and a pod. It has the verdict, the reasons with details, the suggested
changes, the scores and the preemption: as values, as JSON and as text. Start reading at `explanation`. `overview` lists
all pending pods, `choice` compares the best nodes, and `changes` searches for what would help.
"""
