"""Stores the pods that use each volume, the nodes that each volume is attached to, and the unbound volumes.

The table reports every change of pods, nodes, claims, volumes, CSINodes and VolumeAttachments. The volume rules read
columns by row, and sets of pods. Start reading at `volume_usage.Storage`, which owns the other classes.
"""
