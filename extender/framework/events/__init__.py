"""Cluster events, and queueing hints: which waiting pods a change may help. Start with `queueing_hints`."""
