"""Stores which pods use which volumes, which volumes are attached to which nodes, and unbound volumes.

In: every change of pods, nodes, claims, volumes, CSINodes and VolumeAttachments. Out: columns by row and sets of slots
for the volume rules. Start reading at `storage.Storage`, which owns the other classes.
"""
