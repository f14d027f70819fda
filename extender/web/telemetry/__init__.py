"""Maintains the Prometheus metrics, and writes the log.

Events come in through the protocols of `runtime.ports`, `calls` and the scheduler. The page /metrics, and lines on
standard error, go out. Start with `series.SERIES`; `log` escapes and shortens text that comes from users.
"""
