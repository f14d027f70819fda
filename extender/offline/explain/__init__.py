"""Explanations: the reasons why a pod waits, in numbers, and the smallest change that would let it run.

In comes a ClusterState and a pod; out comes an Explanation, which has its verdict, the reasons with details, the
changes (each decided again before it is named), the scores and the preemption as values, as JSON and as text. Begin
reading at `explanation`; `details` has the numbers behind each plugin's reason, `changes` the search for what helps.
"""
