"""Maintains the Prometheus metrics, and writes the log.

It receives events through the protocols in `runtime.ports`, `calls` and the scheduler, and shows them on the page
/metrics and in lines on standard error. Start with `series.SERIES`; `log` escapes and shortens text that comes from
users.
"""
