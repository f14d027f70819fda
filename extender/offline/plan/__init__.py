"""Finds the fewest evictions after which given pods are placed, or proves that no evictions help.

Start with `search`. It asks `model`, a relaxed problem that a solver answers, which pods to evict, and `attempts`
carries the evictions out in a `trial`, with the scheduler's own decisions. Only such a plan is an answer. `goals`
searches for room and for nodes to empty, and `arithmetic` finds bounds and moves without decisions. `trial` also has
the rules about which pods may be evicted.
"""
