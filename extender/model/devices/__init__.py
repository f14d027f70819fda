"""Defines the objects of resource.k8s.io: slices, device classes and claims."""
