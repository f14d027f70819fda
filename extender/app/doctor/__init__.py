"""Implements `extender doctor`, which checks the cluster, the configurations and a running extender.

Each check yields findings, which say what to do. The checks change nothing. Start with `diagnosis`.
"""
