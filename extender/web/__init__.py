"""Serves the verbs, health, metrics and debug pages over HTTP, with Flask.

A WSGI server, or the worker in `web.worker`, reads the requests. A `Backend` holds the verbs and the functions of the
process. Start with `app.create_app`, then `calls`, which turns the body of a request into an answer. `access` decides
which callers are allowed, `gunicorn_server` runs gunicorn, and `pages` serves a process that has no verbs.
"""
