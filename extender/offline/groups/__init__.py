"""Finds the pod groups of a cluster in memory, and decides about each as a whole."""
