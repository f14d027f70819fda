"""The checks of `extender doctor`: the cluster, the scheduler's configuration, the extender behind a URL, the policy.

In: a client or a file. Out: findings, each with what to do. Nothing is written anywhere. Begin with `diagnosis`.
"""
