"""Serves HTTP/1.1 with one blocking thread for each connection, as a gunicorn worker.

The interface to the application is WSGI (PEP 3333) and `application.Application`. Start with `connection`, which reads
requests within limits and sends answers; `request_parser` parses HTTP.
"""

from extender.web.worker.worker import ThreadPerConnection

__all__ = ["ThreadPerConnection"]
