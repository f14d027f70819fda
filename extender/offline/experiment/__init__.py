"""Experiments: a trace of pods is placed under several policies and seeds, and what comes of it is measured.

Start with `specification`, the file that a user writes; it also reads the trace and says which pods come when. `run`
places them under one policy and one seed, and `sweep` makes all runs and sums them up.
"""
