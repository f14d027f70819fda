"""Decisions on a snapshot of a cluster: the library's `Cluster`, explanation, and the in-memory cluster."""
