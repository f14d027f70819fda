"""Checks objects whose controllers create pods: start reading at `workloads`."""
