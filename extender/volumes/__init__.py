"""Finds the volumes of pods: their claims, matching persistent volumes, and capacity for new volumes.

Given a pod, a table and rows of nodes, `PodVolumes` finds the result for each node. VolumeBinding uses it to filter,
score and bind. `attachable_volumes` finds the volumes that the rules for volume limits count. Data that changes with
every event, such as which pod uses which volume, is in `table.volume_usage`. Start at `node_volumes.PodVolumes`.
"""
