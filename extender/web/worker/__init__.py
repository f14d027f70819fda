"""A server for HTTP/1.1 with one blocking thread for each connection, and the gunicorn worker that runs it.

In come accepted sockets, out go answers. Its one interface is `application.Lifecycle`: `admit` takes a request's head,
returns the handler that answers its body, and knows nothing of what is asked. Begin with `connection`, which reads a
request by `http1`, within limits, and sends the answer; its Acceptor decides who may come in.
"""

from extender.web.worker.worker import ThreadPerConnection

__all__ = ["ThreadPerConnection"]
