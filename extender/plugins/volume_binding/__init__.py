"""VolumeBinding: the claims of a pod must be bound, or bindable, to volumes that the node reaches."""
