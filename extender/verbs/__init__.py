"""Implements filter, prioritize, preempt and bind: each turns a decoded request into an answer, without HTTP.

Only bind assumes a pod or writes to the cluster. Start with `verb.Verb`, the interface of all four, then read `filter`.
"""
