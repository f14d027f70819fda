"""Explains, with numbers, why a pod is pending, and finds the smallest change that would let it run.

An `Explanation` is made from a ClusterState and a pod. It has the verdict, the reasons with details, the suggested
changes, the scores and the preemption: as values, as JSON and as text. Start reading at `explanation`. `overview` lists
all pending pods.

`search` looks for the changes that would let a pod run, such as pods to remove, and tries each one before it is
suggested. `suggestion` defines what a change is; `pod_terms`, `node_labels` and `claim_changes` each have some kinds.
`group` explains a pod group, and `group_changes` suggests changes for it.
"""
