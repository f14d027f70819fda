"""Creates, reserves and deletes the claims of pods, as Kubernetes controllers would.

Everything here changes a ClusterState in memory, never a real cluster. `creation` makes a pod's claims from templates
when the pod is created; `sharing` finds those that members of a group share. `usage` reserves claims when the pod is
placed, and frees them when it is deleted.
"""
