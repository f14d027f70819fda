"""The volumes of pods: their claims, the persistent volumes that match, and the capacity to provision more.

In: a pod, a table and rows of nodes. Out: `PodVolumes`, the outcome for each node, with which VolumeBinding filters,
scores and binds; `attachable_volumes`, which the volume limits count. State that changes with every event, like which
pod uses which volume, is in `table.volumes`. Start with `node_volumes.PodVolumes`.
"""
