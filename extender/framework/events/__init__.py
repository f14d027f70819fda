"""Cluster events, and queueing hints: which unschedulable pods a change may help. Begin with `queueing_hints`."""
