"""Implements filter, prioritize, preempt and bind, from the decoded request to the answer.

Nothing here handles HTTP. Only bind assumes pods and writes to the cluster. Start with `verb.Verb`, the interface of
all four, then read `filter`. `group_plans` plans pod groups for filter, `group_quorum` keeps gangs together at bind,
and `split_gangs` keeps room for gangs that were split.
"""
