"""Volumes as the table keeps them: who uses which claim and disk, what is attached where, which volumes are unbound.

In: every change of pods, nodes, claims, volumes, CSINodes and VolumeAttachments. Out: columns by row and sets of slots
for the volume rules. Begin with `storage.Storage`, which holds the others.
"""
