"""Serves the verbs, health, metrics and debug pages over HTTP, with Flask.

Requests come in, read by a WSGI server or by the worker of `web.worker`, and a `Backend`: the verbs and the process
behind them. Answers, metrics and log lines go out. Start with `app.create_app`, then `calls`, which turns the body of a
request into an answer. `access` decides which callers are allowed, `server` runs gunicorn, and `pages` serves a process
that has no verbs.
"""
