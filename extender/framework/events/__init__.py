"""Cluster events and queueing hints: what happened, and which refused pods it may help."""
