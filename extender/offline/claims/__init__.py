"""The claims of pods, as controllers create them, reserve them and delete them.

Everything here changes a ClusterState, never a cluster. `creation` makes a pod's claims from templates when the pod is
created. `usage` reserves them when it is placed, and frees them when it is deleted.
"""
