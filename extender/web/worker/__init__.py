"""A server for HTTP/1.1 with one blocking thread for each connection, and the gunicorn worker that runs it.

In: accepted sockets. Out: answers. Its interface to the application is `application.Lifecycle`, whose `admit` takes a
request's head and returns the handler of its body. Begin with `connection`, which reads requests within limits and
sends answers; `request_parser` knows HTTP.
"""

from extender.web.worker.worker import ThreadPerConnection

__all__ = ["ThreadPerConnection"]
