"""Experiments: a trace of pods is placed under several policies and seeds, and what comes of it is measured.

Start with `specification`, the file that a user writes. `trace` and `arrivals` say which pods come when, `run` places
them under one policy and one seed, `sweep` makes all runs, and `results` sums them up.
"""
