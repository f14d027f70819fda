"""Reads a KubeSchedulerConfiguration: profiles with plugins, weights and arguments."""
