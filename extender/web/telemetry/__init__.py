"""Prometheus series and log lines.

In: what happened, by the protocols of `runtime.ports`, `calls` and the scheduler. Out: the exposition at /metrics, and
lines on standard error. Begin with `metrics.SERIES`; `log` escapes and bounds what is written.
"""
