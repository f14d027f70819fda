"""The address of an API server and the credentials there, as the `kubernetes` client reads a kubeconfig or an account.

The client is imported when a cluster is asked for, not before: it takes 9 MiB and a tenth of a second.
"""

from __future__ import annotations

import copy
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from extender.cluster.http.endpoint import Endpoint, address_of, client_context, content, one_line, split_http_url
from extender.errors import ConfigurationError

PLUGIN_SECONDS = 20.0
_SHOWN_CHARACTERS = 300


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin's grant; upstream ExecCredentialStatus. `expiration_timestamp` is RFC 3339, "" without an end."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: ExecStatus


_CREDENTIAL = msgspec.json.Decoder(_ExecCredential)


def run_plugin(spec: Mapping[str, Any], cluster: Mapping[str, Any], directory: Path) -> ExecStatus:
    """Runs the command of `spec`, a kubeconfig's `exec`, in `directory`, and returns what it grants.

    Raises:
        OSError, ValueError, KeyError, TypeError: it cannot be run, fails, hangs for `PLUGIN_SECONDS` or grants nothing.
    """
    info: dict[str, Any] = {"interactive": False}
    if spec.get("provideClusterInfo"):
        info["cluster"] = cluster
    request = {"apiVersion": spec["apiVersion"], "kind": "ExecCredential", "spec": info}
    environment = {each["name"]: each["value"] for each in spec.get("env") or ()}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
    command = [spec["command"], *(spec.get("args") or ())]
    output = _output_of(command, {**os.environ, **environment}, directory)
    try:
        credential = _CREDENTIAL.decode(output)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"credential plugin {command[0]}: its output is no ExecCredential: {error}") from None
    if credential.api_version != spec["apiVersion"]:
        raise ValueError(f"credential plugin {command[0]} speaks {credential.api_version}, not {spec['apiVersion']}")
    status = credential.status
    if not (status.token or (status.client_certificate_data and status.client_key_data)):
        raise ValueError(f"credential plugin {command[0]} grants neither a token nor a certificate with its key")
    return status


def _output_of(command: list[str], environment: Mapping[str, str], directory: Path) -> bytes:
    # A group of its own, so that what the plugin has started ends with it.
    process = subprocess.Popen(  # noqa: S603  the kubeconfig names it, as it names whom to trust
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        output, complaint = process.communicate(timeout=PLUGIN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise ValueError(f"credential plugin {command[0]} did not end in {PLUGIN_SECONDS:g} s") from None
    if process.returncode:
        said = complaint.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
        raise ValueError(f"credential plugin {command[0]} failed with status {process.returncode}: {said}")
    return output


_RELOAD_SECONDS = 60.0  # a service account's token lives for an hour, and is replaced ten minutes before its end
_BEFORE_EXPIRY_SECONDS, _LEAST_SECONDS = 20.0, 10.0
_FAULTY = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)  # raised on a file of odd form


@dataclass(frozen=True, slots=True, eq=False)
class ClientConfig:
    """One reading of the credentials.

    Attributes:
        base: path that all paths of the API stand under; empty as a rule.
        authorization: the header; None: there is none.
        valid_until: when the credentials are to be read again, in monotonic seconds.
        material: what the endpoint was made of, to see whether another is needed.
    """

    endpoint: Endpoint
    base: str
    authorization: str | None
    valid_until: float
    material: tuple[object, ...]


class Kubeconfig:
    """A kubeconfig file and one of its contexts, by default its current one."""

    def __init__(self, path: Path, context: str | None = None) -> None:
        self._path, self._context = path, context
        self._granted: ExecStatus | None = None
        self._granted_until = 0.0

    def load(self, before: ClientConfig | None = None, *, rejected: bool = False) -> ClientConfig:
        """Reads them as they are now. The endpoint is that of `before` unless it has changed.

        Args:
            rejected: the API server no longer accepts what `before` has.

        Raises:
            ConfigurationError: they cannot be read.
        """
        if not self._path.is_file():
            what = "it is no file" if self._path.exists() else "no such file"
            raise ConfigurationError([f"kubeconfig {self._path}: {what}"])
        import yaml
        from kubernetes.config import ConfigException

        if rejected:
            self._granted = None
        try:
            return self._read(yaml.safe_load(self._path.read_bytes()), before)
        except (ConfigException, yaml.YAMLError, *_FAULTY) as error:
            raise ConfigurationError([f"kubeconfig {self._path}: {one_line(error)}"]) from None

    def _read(self, document: Any, before: ClientConfig | None) -> ClientConfig:
        from kubernetes.client.configuration import Configuration
        from kubernetes.config.kube_config import KubeConfigLoader

        document = copy.deepcopy(document)
        user, cluster = _chosen(document, self._context)
        # The client would go on as nobody where the plugin fails, and wait for as long as it hangs.
        plugin = user.pop("exec", None) if not user.get("token") and not user.get("tokenFile") else None
        configuration = Configuration()
        loader = KubeConfigLoader(document, self._context, config_base_path=str(self._path.parent.resolve()))  # type: ignore[no-untyped-call]  # the client ships a marker but few types
        try:
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]  # as above
        except (AttributeError, KeyError, TypeError) as error:
            if "auth-provider" not in user:
                raise
            raise ValueError(f"users: auth-provider gives no token, use exec in its place: {one_line(error)}") from None
        url = split_http_url(configuration.host)
        if plugin is None:
            # What a provider's own client has fetched is fetched again when the API server says so.
            seconds = inf if "auth-provider" in user else _RELOAD_SECONDS
            return _config(configuration, before, time.monotonic() + seconds)
        _require_tls(url)
        granted = self._grant(plugin, cluster)
        if granted.token:
            configuration.api_key["BearerToken"] = f"Bearer {granted.token}"
        pem = f"{granted.client_certificate_data}\n{granted.client_key_data}".strip().encode()
        return _config(configuration, before, min(self._granted_until, time.monotonic() + _RELOAD_SECONDS), pem)

    def _grant(self, plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> ExecStatus:
        if self._granted is None or time.monotonic() >= self._granted_until:
            self._granted = run_plugin(plugin, cluster, self._path.parent.resolve())
            self._granted_until = time.monotonic() + _seconds_until(self._granted.expiration_timestamp)
        return self._granted


class ServiceAccount:
    """The account of the pod that this process runs in."""

    def load(self, before: ClientConfig | None = None, *, rejected: bool = False) -> ClientConfig:  # noqa: ARG002
        """See Kubeconfig; `rejected` makes no difference, for files are read every time."""
        from kubernetes.client.configuration import Configuration
        from kubernetes.config import ConfigException, load_incluster_config

        configuration = Configuration()
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # as above
            return _config(configuration, before, time.monotonic() + _RELOAD_SECONDS)
        except (ConfigException, *_FAULTY) as error:
            instead = f"there is no service account to use instead ({one_line(error)})"
            raise ConfigurationError([f"no kubeconfig was given, and {instead}: give --kubeconfig FILE"]) from None


Credentials = Kubeconfig | ServiceAccount


def credentials_of(kubeconfig: Path | None) -> Credentials:
    """Returns those of the file, or without one those of the pod that this process runs in."""
    return Kubeconfig(kubeconfig) if kubeconfig else ServiceAccount()


def _chosen(document: Any, context: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the context's user and cluster; an empty user where it names none. Raises ValueError with the field."""
    if not isinstance(document, dict):
        raise ValueError("want a mapping with clusters, users, contexts and current-context")
    if not (name := context or document.get("current-context")):
        raise ValueError("current-context: required")
    chosen = _named(document, "context", name)
    user = _named(document, "user", chosen["user"]) if chosen.get("user") else {}
    return user, _named(document, "cluster", chosen.get("cluster"))


def _named(document: Mapping[str, Any], kind: str, name: object) -> dict[str, Any]:
    """Returns the `user` of this name under `users`, and the like. Raises ValueError where there is none."""
    entries = document.get(field := f"{kind}s")
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError(f"{field}: want a list of entries with name and {kind}")
    found = next((each for each in entries if each.get("name") == name), None)
    if found is None:
        raise ValueError(f"{field}: there is no {name!r}")
    if isinstance(said := found.get(kind) or {}, dict):
        return said
    raise ValueError(f"{field}: {name!r}: {kind}: want a mapping")


def _config(configuration: Any, before: ClientConfig | None, valid_until: float, pem: bytes = b"") -> ClientConfig:
    """Makes a ClientConfig of a kubernetes.client.Configuration. `pem`: a plugin's certificate with its key.

    Raises:
        OSError, ValueError: certificates cannot be read, or the token cannot be sent.
    """
    url = split_http_url(configuration.host)
    authorization = _authorization(configuration, url)
    proxy = _proxy(configuration)
    authorities = _authorities(configuration)
    certificate = pem or content(configuration.cert_file) + b"\n" + content(configuration.key_file)
    server_name = str(configuration.tls_server_name or url.hostname)
    verified = configuration.verify_ssl, configuration.assert_hostname
    material = (url, proxy, authorities, certificate, server_name, verified)
    if before is not None and before.material == material:
        endpoint = before.endpoint
    else:
        tls = _tls_context(configuration, authorities, certificate.strip()) if url.scheme == "https" else None
        host, headers = url.netloc.rpartition("@")[2], configuration.proxy_headers
        endpoint = Endpoint(host, address_of(url), server_name, tls, proxy, headers)
    return ClientConfig(endpoint, url.path.rstrip("/"), authorization, valid_until, material)


def _authorization(configuration: Any, url: SplitResult) -> str | None:
    token = (configuration.api_key.get("BearerToken") or "").strip()
    if not token:
        return None
    _require_tls(url)
    if not (token.isascii() and token.isprintable()):
        raise ValueError("the token holds a line break, or another character that no header may hold")
    return str(token)


def _require_tls(url: SplitResult) -> None:
    if url.scheme != "https":
        raise ValueError(f"{url.geturl()} is no https URL: a token would be sent for everyone to read")


def _tls_context(configuration: Any, authorities: str | None, certificate: bytes) -> ssl.SSLContext:
    context = client_context(authorities, certificate, verified=configuration.verify_ssl)
    if configuration.assert_hostname is False:
        context.check_hostname = False
    return context


def _authorities(configuration: Any) -> str | None:
    """Returns the certificates to trust (PEM); None: those of the system. Raises OSError, ValueError."""
    if not configuration.ssl_ca_cert:
        return configuration.ca_cert_data or None
    authorities = Path(configuration.ssl_ca_cert).read_text("ascii")
    if not authorities.strip():  # the ssl module would trust the system's instead
        raise ValueError("the certificate authority is empty, or no base64")
    return authorities


def _proxy(configuration: Any) -> SplitResult | None:
    from kubernetes.client.rest import should_bypass_proxies

    if not configuration.proxy or should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        return None
    proxy = urlsplit(str(configuration.proxy))
    if proxy.scheme != "http":
        raise ValueError(f"proxy {configuration.proxy!r}: only http:// proxies are supported")
    return proxy


def _seconds_until(timestamp: str) -> float:
    """Returns how long a plugin's grant is good for; raises ValueError where its end is no time."""
    if not timestamp:
        return inf
    left = datetime.fromisoformat(timestamp).timestamp() - time.time()
    return max(left - _BEFORE_EXPIRY_SECONDS, _LEAST_SECONDS)
