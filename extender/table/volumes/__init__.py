"""Stores which pods use which volumes, which volumes are attached to which nodes, and unbound volumes.

The table reports every change of pods, nodes, claims, volumes, CSINodes and VolumeAttachments. The volume rules read
columns by row, and sets of pods. Start reading at `storage.Storage`, which owns the other classes.
"""
