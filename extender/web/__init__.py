"""Serves the verbs, health, metrics and debug pages over HTTP, with Flask.

The worker in `web.worker`, or another WSGI server, reads a request and passes it to the Flask application of `app`,
which answers every request on every port. Start with `app.ExtenderApp`, then `app.Calls`, which turns the body of a
verb's request into an answer. `access` decides which callers are allowed, and `worker.serve` runs gunicorn. A `Backend`
holds the verbs and the functions of the process. `series.SERIES` lists the metrics; `log` writes the log.
"""
