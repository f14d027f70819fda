"""Defines cluster events and queueing hints, which find the waiting pods that a change may help.

Start with `queueing_hints`.
"""
