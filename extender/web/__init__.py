"""The Flask service: verbs, health, metrics and debug pages over HTTP.

In: requests, read by a WSGI server or by the worker of `web.worker`, and a `Backend`: the verbs and the process behind
them. Out: answers, metrics and log lines. Begin with `app.create_app`, then `calls`, which holds the table of the verbs
and turns a request's body into an answer. `access` decides who may call, `server` runs gunicorn, and `pages` serves a
process that has no verbs.
"""
