"""Policies that choose nodes and devices. A policy knows nothing of how a choice is written.

Start with `device_nodes`, the columns that a policy reads, and `catalog.BestFit`, the shortest policy. `policy` asks
policies for one pod after another and computes only what has changed. `catalog` has the policies by name.
"""
