"""Forwards a port of a pod through the API server, as `kubectl port-forward` does.

The `kubernetes` client implements the protocol, but `http.endpoint` opens the connection. A connection of the client
would ignore --as, and would wait forever for a credential plugin that hangs.
"""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass

from extender.cluster.http.credentials import Credentials
from extender.errors import ClusterError

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ForwardedReplica:
    """A pod of a Deployment, called through a forwarded port. Each request forwards the port again."""

    credentials: Credentials
    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.pod}:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Requests the path; returns the status and the body. Raises ClusterError if no answer arrives."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_SECONDS)
        connection.sock = forwarded_port(self.credentials, self.namespace, self.pod, self.port)
        connection.sock.settimeout(_ANSWER_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"no answer from {self}: {error}; check that it serves plain HTTP there") from None
        finally:
            connection.close()


def forwarded_port(credentials: Credentials, namespace: str, pod: str, port: int) -> socket.socket:
    """Returns a socket that is connected to the port of the pod.

    Raises:
        ConfigurationError: the credentials cannot be read.
        ClusterError: the API server cannot be reached, or refuses to forward the port.
    """
    from kubernetes.stream.ws_client import PortForward
    from websocket import WebSocket, WebSocketException

    config = credentials.load()
    connection = config.endpoint.dial(_CONNECT_SECONDS)
    scheme = "wss" if config.endpoint.tls else "ws"
    path = f"{config.base}/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}"
    headers = [f"{name}: {value}" for name, value in config.impersonation]
    if config.authorization:
        headers.append(f"Authorization: {config.authorization}")
    channels = WebSocket(skip_utf8_validation=False)
    try:
        channels.connect(  # type: ignore[no-untyped-call]  # neither package has type information
            f"{scheme}://{config.endpoint.host}{path}",
            socket=connection,
            header=headers,
            subprotocols=["v4.channel.k8s.io"],
        )
        connection.settimeout(None)
        forwarded: socket.socket = PortForward(channels, [port]).socket(port)  # type: ignore[no-untyped-call]
    except (WebSocketException, OSError, ValueError) as error:
        connection.close()
        raise ClusterError(f"port {port} of pod {namespace}/{pod} cannot be forwarded: {error}") from None
    return forwarded
