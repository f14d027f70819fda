"""Finds the volumes of pods: their claims, matching persistent volumes, capacity to provision more.

In: a pod, a table and rows of nodes. Out: `PodVolumes`, the result for each node, which VolumeBinding uses to filter,
score and bind; `attachable_volumes`, which the rules for volume limits count. Data that changes with every event, such
as which pod uses which volume, is in `table.volumes`. Start reading at `node_volumes.PodVolumes`.
"""
