"""Pods as columns: counts by group, affinity terms and host ports."""
