"""Finds the fewest evictions after which given pods are placed, or proves that no evictions help.

Start with `search`. It asks `model`, a relaxed problem that a solver answers, which pods to evict, and `trial` carries
the evictions out with the scheduler's own decisions. Only a plan that the trial has carried out is an answer.
"""
