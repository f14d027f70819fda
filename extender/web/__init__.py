"""The Flask service: verbs, health, metrics and debug pages over HTTP.

In: requests, by a WSGI server or by the worker of `web.worker`, and a `Backend`: the verbs and the process behind them.
Out: answers, metrics and log lines. Begin with `app.create_app`, then `calls`, which has the one table of the verbs and
makes an answer of a request's bytes. `server` runs gunicorn, `pages` serves a process that has no verbs.
"""
