"""Maintains the Prometheus metrics, and writes the log.

The rest of the program reports events through protocols such as `runtime.ports.Telemetry`. These events appear in
metrics at /metrics and in log lines on standard error. Start with `series.SERIES`. `log` escapes and shortens text that
comes from users.
"""
