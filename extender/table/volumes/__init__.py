"""The volumes of the table: who uses which claim and disk, what is attached where, which volumes are unbound.

In: every change of pods, nodes, claims, volumes, CSINodes and VolumeAttachments. Out: columns by row and sets of slots
for the volume rules. Start reading at `storage.Storage`, which owns the others.
"""
