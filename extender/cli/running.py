"""Sends requests to a running `extender serve` or `schedule`, at an address or by port forwarding in a cluster.

The command `extender status` shows the pods that a running `extender schedule` has not placed yet, by queue.
"""

from __future__ import annotations

import functools
import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

import click

from extender.cli.document_kinds import DocumentKind, headed
from extender.cli.output import JsonPath, Output, add_options, in_order, list_options, output_option, say, show, switch
from extender.cli.source_options import ACCESS, access_options, pod_key, refuse_options
from extender.config.cluster_access import ClusterAccess, live_access
from extender.errors import ConfigurationError, ExtenderError
from extender.runtime.text import age, aligned, counted

if TYPE_CHECKING:
    from extender.model.selectors import Selector

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
"""The names of the options that `tls_options` adds."""


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
        http.client.HTTPConnection.connect(self)
        self.sock = self._own_context.wrap_socket(self.sock, server_hostname=self._server_name or self.host)


def tls_options(command: _Command) -> _Command:
    """Adds kubectl's options for a server that speaks TLS to a command, which gets the values as `tls`."""

    @functools.wraps(command)
    def with_tls(
        *positional: Any,
        certificate_authority: Path | None,
        client_certificate: Path | None,
        client_key: Path | None,
        tls_server_name: str | None,
        **others: Any,
    ) -> Any:
        tls = ServerTls(certificate_authority, client_certificate, client_key, tls_server_name)
        return command(*positional, tls=tls, **others)

    file = click.Path(path_type=Path)
    options = (
        click.option(
            "--certificate-authority", type=file, metavar="FILE", help="CA that signed the process's certificate"
        ),
        click.option("--client-certificate", type=file, metavar="FILE", help="your certificate for the process"),
        click.option("--client-key", type=file, metavar="FILE", help="its key  [default: in the same file]"),
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


SECTIONS = {
    "active": "will be tried next",
    "backoff": "was refused, and is tried again after its backoff",
    "unschedulable": "was refused, and waits for an event that may help",
    "gated": "is not tried yet: it has a scheduling gate, its victims are leaving, or its PodGroup is unknown",
    "inFlight": "is being scheduled",
    "assumed": "was placed on its node, but the API server has not confirmed it yet",
    "arriving": "was just received",
}
PATH = "/debug/pods"
_PORT = 8889
_WATCH_SECONDS = 1.0
FIELDS = {
    "NAMESPACE": "namespace",
    "NAME": "name",
    "TIER": "tier",
    "ATTEMPTS": "attempts",
    "SINCE": "sinceSeconds",
    "REFUSED BY": "refusedBy",
    "NODE": "node",
    "NOMINATED": "nominatedNode",
}
_WIDE = {**FIELDS, "PRIORITY": "priority", "SCHEDULER": "schedulerName", "UID": "uid"}
Pod = Mapping[str, Any]


@click.command(
    epilog="\b\nTiers:\n" + "\n".join(f"  {name:<14} {meaning}" for name, meaning in SECTIONS.items()),
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--server",
    metavar="URL",
    default="http://127.0.0.1:8889",
    show_default=True,
    help="address of the scheduler: its --bind",
)
@IN_CLUSTER_OPTION
@tls_options
@access_options
@click.option("-n", "--namespace", metavar="NAME", help="show only pods of this namespace")
@switch("-A", "--all-namespaces", help="show the pods of all namespaces (the default without -n)")
@click.option(
    "--tier", type=click.Choice(tuple(SECTIONS)), multiple=True, help="show only pods in this tier; repeatable"
)
@list_options
@switch("-w", "--watch", help="then keep showing pods as they are added or change, until Ctrl-C")
@output_option()
def status(
    names: tuple[str, ...],
    server: str,
    in_cluster: str | None,
    access: ClusterAccess,
    namespace: str | None,
    all_namespaces: bool,
    tier: tuple[str, ...],
    selector: Selector | None,
    sort_by: JsonPath | None,
    watch: bool,
    output: Output,
    tls: ServerTls,
) -> None:
    """Show the pods that a running `extender schedule` has not placed yet, and which plugins refused them.

    \b
    All these pods, only the refused ones, or one of them as YAML:
      extender status
      extender status --tier unschedulable -o wide
      extender status shop/web-0 -o yaml
    The pods of an application, longest waiting last, and then every change:
      extender status -l app=web --sort-by .sinceSeconds --watch
    For a scheduler in the cluster:
      extender status --in-cluster extender-system/extender

    SINCE is the time since a pod entered the queue or was last returned to it. REFUSED BY lists the plugins that
    refused the pod in its last attempt, or that keep it from being tried. NOMINATED is the node from which preemption
    evicts other pods for this pod.

    Exit status: 0, also if no pod is waiting; 1 if there is no answer; 2 for wrong usage.
    """
    if in_cluster is None:
        refuse_options(ACCESS, "these options need --in-cluster NAMESPACE/DEPLOYMENT")
    else:
        refuse_options(TLS, "these options need --server URL: --in-cluster goes through the API server")
        refuse_options(("server",), "give one scheduler: either --server or --in-cluster")
    keys = {pod_key(name, "") for name in names}
    chosen = None if all_namespaces else namespace

    def is_meant(pod: Pod) -> bool:
        return (
            chosen in (None, pod["namespace"])
            and (not keys or not keys.isdisjoint((f"/{pod['name']}", f"{pod['namespace']}/{pod['name']}")))
            and (not tier or pod["tier"] in tier)
            and (selector is None or selector.matches(pod.get("labels", {})))
        )

    addressed = AddressedReplica(server, "--server", "`extender schedule`", tls)
    replica, queue = _leader_of(replicas_of(in_cluster, access, _PORT, addressed))
    pods = in_order(filter(is_meant, pods_of(queue)), sort_by)
    if not queue["leading"]:
        click.echo("note: this replica is not the leader, so it schedules no pods", err=True)
    _print(pods, queue["scheduled"], output)
    has_heading = bool(pods)
    with suppress(KeyboardInterrupt):
        while watch:
            time.sleep(_WATCH_SECONDS)
            queue, before = queue_of(replica), {pod["uid"]: _without_age(pod) for pod in pods}
            pods = in_order(filter(is_meant, pods_of(queue)), sort_by)
            if changed := [pod for pod in pods if before.get(pod["uid"]) != _without_age(pod)]:
                _print(changed, queue["scheduled"], output, heading=not has_heading)
                has_heading = True


def _without_age(pod: Pod) -> Pod:
    return {key: value for key, value in pod.items() if key != "sinceSeconds"}


def _print(pods: Sequence[Pod], scheduled: int, output: Output, *, heading: bool = True) -> None:
    if not output.is_text:
        show(headed(DocumentKind.QUEUE, {"pods": pods, "scheduled": scheduled}), output)
    elif pods:
        text = table(pods, _WIDE if output.is_wide else FIELDS)
        say(text if heading else text.partition("\n")[2])
    else:
        click.echo(f"no such pods are waiting; {counted(scheduled, 'pod')} scheduled so far", err=True)


def _leader_of(replicas: Iterable[RunningReplica]) -> tuple[RunningReplica, Mapping[str, Any]]:
    """Returns the leading replica and its queue. If no replica leads, returns the last replica and its queue."""
    for replica in replicas:
        queue = queue_of(replica)
        if queue["leading"]:
            break
    return replica, queue


def queue_of(replica: RunningReplica) -> Mapping[str, Any]:
    """Requests the queue of a running scheduler; returns the pods in each tier.

    Raises the errors of `RunningReplica.get`, and ExtenderError if the process is not `extender schedule`.
    """
    return _decoded(str(replica), *replica.get(PATH))


def _decoded(server: str, status: int, body: bytes) -> Mapping[str, Any]:
    try:
        queue = json.loads(body) if status == http.client.OK else None
    except ValueError:
        queue = None
    if not isinstance(queue, dict) or not {*SECTIONS, "scheduled", "leading"} <= queue.keys():
        raise ExtenderError(
            f"{server}{PATH} answers {status}, but not with a queue; expected the address of `extender schedule`, "
            "because `extender serve` has no queue"
        )
    return queue


def pods_of(queue: Mapping[str, Any]) -> list[Pod]:
    """Returns the pods of all tiers, sorted by tier and then by priority."""
    pods = [
        {"namespace": pod["namespace"], "name": pod["name"], "tier": section, **pod}
        for section in SECTIONS
        for pod in queue[section]
    ]
    order = {section: position for position, section in enumerate(SECTIONS)}
    return sorted(pods, key=lambda pod: (order[pod["tier"]], -pod["priority"], pod["namespace"], pod["name"]))


def table(pods: Iterable[Pod], fields: Mapping[str, str]) -> str:
    """Returns a table of the pods in kubectl's style, with these fields as columns."""
    lines = [[*fields], *([_shown(field, pod[field]) for field in fields.values()] for pod in pods)]
    return "\n".join(aligned(lines, "   "))


def _shown(field: str, value: Any) -> str:
    if field == "sinceSeconds" and value is not None:
        return age(value)
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value in (None, "") else str(value)
