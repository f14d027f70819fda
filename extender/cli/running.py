"""Sends requests to a running `extender serve` or `schedule`, at an address or by port forwarding in a cluster."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import click

from extender.config.cluster_access import ClusterAccess, live_access
from extender.errors import ConfigurationError, ExtenderError

_Function = TypeVar("_Function", bound=Callable[..., object])
_TIMEOUT_SECONDS = 10.0
_IN_CLUSTER = re.compile(r"([^/:]+)/([^/:]+)(?::(\d{1,5}))?")

IN_CLUSTER_OPTION = click.option(
    "--in-cluster",
    metavar="NAMESPACE/DEPLOYMENT[:PORT]",
    help="ask the pods of this Deployment, by forwarding their port through the API server",
)


class RunningReplica(Protocol):
    """One running process of `extender serve` or `extender schedule`."""

    def get(self, path: str) -> tuple[int, bytes]:
        """Requests the path; returns the status and the body. Raises ExtenderError if no answer arrives."""
        ...


@dataclass(frozen=True, slots=True)
class AddressedReplica:
    """A process at an address.

    Attributes:
        option: the option that gives the address, for error messages.
        program: the name of the process, for error messages.
    """

    server: str
    option: str
    program: str

    def __str__(self) -> str:
        return self.server

    def get(self, path: str) -> tuple[int, bytes]:
        """Requests the path; returns the status and the body.

        Raises:
            ConfigurationError: `server` is not a URL.
            ExtenderError: the server does not answer.
        """
        url = urlsplit(self.server if "//" in self.server else f"http://{self.server}")
        try:
            host, port, secure = url.hostname, url.port, url.scheme == "https"
        except ValueError:
            host = None
        if not host or url.scheme not in ("http", "https"):
            raise ConfigurationError([f"{self.option} {self.server}: expected a URL, such as http://127.0.0.1:8889"])
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context())
            if secure
            else http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        )
        try:
            connection.request("GET", f"{url.path.rstrip('/')}{path}")
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ExtenderError(
                f"no answer from {self.server}: {getattr(error, 'strerror', None) or error}; check that {self.program} "
                f"is running and that {self.option} is the address of its --bind"
            ) from None
        finally:
            connection.close()


def replicas_of(
    deployment: str | None, access: ClusterAccess, default_port: int, addressed: AddressedReplica
) -> Iterable[RunningReplica]:
    """Returns the running pods of the Deployment; if no Deployment is given, returns only `addressed`.

    Args:
        deployment: the value of --in-cluster; None if the option is not given.
        addressed: the process at the address that the user gave.

    Raises:
        ConfigurationError: `deployment` is malformed, or there is no kubeconfig.
        ClusterError: the pods cannot be read, or no pod runs.
    """
    if deployment is None:
        return [addressed]
    match = _IN_CLUSTER.fullmatch(deployment)
    if match is None:
        raise ConfigurationError([f"--in-cluster {deployment}: expected NAMESPACE/DEPLOYMENT[:PORT]"])
    from extender.app.live_lookups import replicas

    return replicas(live_access(access), match[1], match[2], int(match[3] or default_port))
