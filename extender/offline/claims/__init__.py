"""Creates, reserves and deletes the claims of pods, as Kubernetes controllers would.

Everything here changes a ClusterState in memory, never a real cluster. `creation` makes a pod's claims from templates
when the pod is created. `usage` reserves the claims when the pod is placed, and frees the claims when the pod is
deleted. `sharing` takes a pod out of its group, without the loss of the claims that the group's members share.
"""
