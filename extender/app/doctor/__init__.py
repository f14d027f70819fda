"""The checks of `extender doctor`: the cluster, the scheduler's configuration, the extender behind a URL, the policy.

Each check yields findings with what to do about them. Nothing is changed. Start reading at `diagnosis`.
"""
