"""Prometheus series and log lines.

In: events, by the protocols of `runtime.ports`, `calls` and the scheduler. Out: the exposition at /metrics, and lines
on standard error. Begin with `series.SERIES`; `log` escapes and shortens text that comes from users.
"""
