"""Defines the objects of storage: volumes, claims, classes, CSI nodes and drivers."""
