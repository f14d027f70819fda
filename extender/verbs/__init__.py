"""Filter, prioritize, preempt and bind: a decoded request becomes an answer, without any HTTP.

In: requests of `extender_v1`, a cache and profiles. Out: results of `extender_v1`, which
are validated when they are encoded. Nothing but bind writes to the cluster, and nothing but bind reserves. Begin with
`verb.Verb`, the form of all four, then `filter`.
"""
