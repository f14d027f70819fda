"""The volumes of pods: the claims of a pod, the persistent volumes they match, the capacity to provision more.

In: a pod, a table and rows of nodes. Out: `PodVolumes`, the outcome for each node, which VolumeBinding filters, scores
and binds by; `attachable_volumes`, which the volume limits count. What changes with every event (who uses and attaches
which volume) stands in the table, `table.volumes`. Begin with `pod_volumes.PodVolumes`.
"""
