"""Policies that choose nodes and devices. A policy knows nothing of how a choice is written.

Start with `device_nodes`, the columns that a policy reads, and `best_fit`, the shortest policy. `chooser` asks a policy
for one pod after another and computes only what has changed. `catalog` lists the policies by name.
"""
