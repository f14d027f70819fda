"""Defines the groups of scheduling.k8s.io, and the controllers and templates that offline commands read."""
