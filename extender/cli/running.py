"""Sends requests to a running `extender serve` or `schedule`, at an address or by port forwarding in a cluster."""

from __future__ import annotations

import functools
import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import click

from extender.cli.output import add_options, file_option
from extender.config.cluster_access import ClusterAccess, live_access
from extender.errors import ConfigurationError, ExtenderError

_Command = TypeVar("_Command", bound=Callable[..., Any])
_TIMEOUT_SECONDS = 10.0
_OUT_OF_DATE = ("certificate has expired", "certificate is not yet valid")
_IN_CLUSTER = re.compile(r"([^/:]+)/([^/:]+)(?::(\d{1,5}))?")

IN_CLUSTER_OPTION = click.option(
    "--in-cluster",
    metavar="NAMESPACE/DEPLOYMENT[:PORT]",
    help="ask the pods of this Deployment, by forwarding their port through the API server",
)


TLS = ("certificate_authority", "client_certificate", "client_key", "tls_server_name")
"""The names of the options that `tls_options` adds, in the order of the fields of ServerTls."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The files with which a client reaches a process that speaks TLS. The attributes are those of kubectl's options.

    Attributes:
        server_name: the name in the server's certificate, if it is not the host in the address.
    """

    certificate_authority: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None
    server_name: str | None = None

    def connect(self, host: str, port: int | None) -> http.client.HTTPSConnection:
        """Returns a connection, not yet dialled. Raises ConfigurationError if a file cannot be used."""
        if self.client_key is not None and self.client_certificate is None:
            raise ConfigurationError(["--client-key needs --client-certificate"])
        try:
            context = ssl.create_default_context(cafile=self.certificate_authority)
        except OSError as error:
            raise ConfigurationError(
                [f"--certificate-authority {self.certificate_authority}: {_fault(error)}"]
            ) from None
        if self.client_certificate is not None:
            try:
                context.load_cert_chain(self.client_certificate, self.client_key)
            except OSError as error:
                files = f"{self.client_certificate} --client-key {self.client_key or self.client_certificate}"
                raise ConfigurationError([f"--client-certificate {files}: {_fault(error)}"]) from None
        return _NamedConnection(host, port, context, self.server_name)


class _NamedConnection(http.client.HTTPSConnection):
    """A connection whose server has another name in its certificate than in its address."""

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext, server_name: str | None) -> None:
        super().__init__(host, port, timeout=_TIMEOUT_SECONDS, context=context)
        self._own_context = context
        self._server_name = server_name

    def connect(self) -> None:
        """Dials the host, and verifies the server's certificate for the name."""
        http.client.HTTPConnection.connect(self)  # super() would verify the certificate for `self.host`
        self.sock = self._own_context.wrap_socket(self.sock, server_hostname=self._server_name or self.host)


def tls_options(command: _Command) -> _Command:
    """Adds kubectl's options for a server that speaks TLS to a command, which gets the values as `tls`."""

    @functools.wraps(command)
    def with_tls(*positional: Any, **others: Any) -> Any:
        tls = ServerTls(*[others.pop(name) for name in TLS])
        return command(*positional, tls=tls, **others)

    options = (
        file_option("--certificate-authority", help="CA that signed the process's certificate"),
        file_option("--client-certificate", help="your certificate for the process"),
        file_option("--client-key", help="its key  [default: in the same file]"),
        click.option(
            "--tls-server-name", metavar="NAME", help="name in the process's certificate  [default: the URL's]"
        ),
    )
    return add_options(with_tls, options)  # type: ignore[no-any-return]  # click's decorators lose the function's type


def _fault(error: OSError) -> str:
    return (
        "it is not a certificate or key in PEM form"
        if isinstance(error, ssl.SSLError)
        else error.strerror or str(error)
    )


class RunningReplica(Protocol):
    """One running process of `extender serve` or `extender schedule`."""

    def get(self, path: str) -> tuple[int, bytes]:
        """Requests the path; returns the status and the body. Raises ExtenderError if no answer arrives."""


@dataclass(frozen=True, slots=True)
class AddressedReplica:
    """A process at an address.

    Attributes:
        option: the option that gives the address, for error messages.
        program: the name of the process, for error messages.
        tls: how to reach an https address.
    """

    server: str
    option: str
    program: str
    tls: ServerTls = ServerTls()

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
            self.tls.connect(host, port) if secure else http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        )
        try:
            connection.request("GET", f"{url.path.rstrip('/')}{path}")
            answer = connection.getresponse()
            return answer.status, answer.read()
        except ssl.SSLCertVerificationError as error:
            advice = (
                "renew its certificate, for example with `extender certs`"
                if error.verify_message in _OUT_OF_DATE
                else "give the authority of its certificate with --certificate-authority, and through a port-forward "
                "its name with --tls-server-name"
            )
            message = f"{self.server} is not trusted: {error.verify_message.rstrip('.')}; {advice}"
            raise ExtenderError(message) from None
        except (OSError, http.client.HTTPException) as error:
            advice = _about_tls(error, secure) or (
                f"check that {self.program} is running and that {self.option} is the address of its --bind"
            )
            reason = getattr(error, "strerror", None) or error
            raise ExtenderError(f"no answer from {self.server}: {reason}; {advice}") from None
        finally:
            connection.close()


def _about_tls(error: Exception, secure: bool) -> str:
    """Returns what to do if one side speaks TLS and the other does not, or refuses the certificate; else ""."""
    is_ended = isinstance(error, ConnectionResetError | BrokenPipeError | http.client.BadStatusLine | ssl.SSLError)
    if not is_ended:
        return ""
    if not secure:
        return "the process may expect https:// in place of http://"
    if "WRONG_VERSION_NUMBER" in str(error):
        return "the process speaks http:// in place of https://"
    return "the process ended the handshake: give a --client-certificate that its clientCa has signed"


def document_of(replica: RunningReplica, path: str) -> tuple[int, dict[str, Any]]:
    """Requests the path; returns the status, and the JSON object of the answer or {}. Raises what `get` raises."""
    status, body = replica.get(path)
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    return status, document if isinstance(document, dict) else {}


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
