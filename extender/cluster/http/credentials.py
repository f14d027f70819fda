"""Reads the address of an API server and the credentials for it, from a kubeconfig or from a service account.

The `kubernetes` client does the reading. It is imported on first use only, because it takes 9 MiB and 0.1 s.
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
    """The credentials that a plugin returns (upstream ExecCredentialStatus).

    Attributes:
        expiration_timestamp: in RFC 3339, "" if they do not expire.
    """

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: ExecStatus


_CREDENTIAL = msgspec.json.Decoder(_ExecCredential)


def run_plugin(spec: Mapping[str, Any], cluster: Mapping[str, Any], directory: Path) -> ExecStatus:
    """Runs the credential plugin of `spec`, a kubeconfig's `exec`, in `directory`; returns its credentials.

    Raises:
        OSError, ValueError, KeyError, TypeError: the plugin cannot be run, fails, returns no credentials, or takes
            longer than `PLUGIN_SECONDS`.
    """
    info: dict[str, Any] = {"interactive": False}
    if spec.get("provideClusterInfo"):
        info["cluster"] = cluster
    request = {"apiVersion": spec["apiVersion"], "kind": "ExecCredential", "spec": info}
    environment = {variable["name"]: variable["value"] for variable in spec.get("env") or ()}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
    command = [spec["command"], *(spec.get("args") or ())]
    output = _output_of(command, {**os.environ, **environment}, directory)
    try:
        credential = _CREDENTIAL.decode(output)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"credential plugin {command[0]}: its output is not an ExecCredential: {error}") from None
    if credential.api_version != spec["apiVersion"]:
        raise ValueError(
            f"credential plugin {command[0]}: expected apiVersion {spec['apiVersion']}, got {credential.api_version}"
        )
    status = credential.status
    if not (status.token or (status.client_certificate_data and status.client_key_data)):
        raise ValueError(f"credential plugin {command[0]} returned neither a token nor a certificate with its key")
    return status


def _output_of(command: list[str], environment: Mapping[str, str], directory: Path) -> bytes:
    # A new process group, so that the plugin's child processes are killed with it.
    process = subprocess.Popen(  # noqa: S603  the kubeconfig names the command, as it names the trusted CA
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        output, error_output = process.communicate(timeout=PLUGIN_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise ValueError(f"credential plugin {command[0]} took longer than {PLUGIN_SECONDS:g} s") from None
    if process.returncode:
        shown = error_output.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
        raise ValueError(f"credential plugin {command[0]} failed with status {process.returncode}: {shown}")
    return output


_RELOAD_SECONDS = 60.0  # a service account's token is valid for an hour and replaced ten minutes before its end
_BEFORE_EXPIRY_SECONDS, _LEAST_SECONDS = 20.0, 10.0
# the errors that a malformed file can cause
_FAULTY = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True, eq=False)
class ClientConfig:
    """The address of the API server and the credentials, as they were read at one time.

    Attributes:
        base: the path before all paths of the API, usually "".
        authorization: the Authorization header, None if there is no token.
        valid_until: when the credentials must be read again, in monotonic seconds.
        material: everything that the endpoint depends on; if it has changed, a new endpoint is needed.
    """

    endpoint: Endpoint
    base: str
    authorization: str | None
    valid_until: float
    material: tuple[object, ...]


class Kubeconfig:
    """A kubeconfig file and one of its contexts, by default the current one."""

    def __init__(self, path: Path, context: str | None = None) -> None:
        self._path = path
        self._context = context
        self._plugin_credentials: ExecStatus | None = None
        self._plugin_credentials_until = 0.0

    def load(self, before: ClientConfig | None = None, *, rejected: bool = False) -> ClientConfig:
        """Reads the credentials. Reuses the endpoint of `before` unless something about it has changed.

        Args:
            rejected: the API server no longer accepts the credentials of `before`.

        Raises:
            ConfigurationError: the credentials cannot be read.
        """
        if not self._path.is_file():
            reason = "not a file" if self._path.exists() else "no such file"
            raise ConfigurationError([f"kubeconfig {self._path}: {reason}"])
        import yaml
        from kubernetes.config import ConfigException

        if rejected:
            self._plugin_credentials = None
        try:
            return self._read(yaml.safe_load(self._path.read_bytes()), before)
        except (ConfigException, yaml.YAMLError, *_FAULTY) as error:
            raise ConfigurationError([f"kubeconfig {self._path}: {one_line(error)}"]) from None

    def _read(self, document: Any, before: ClientConfig | None) -> ClientConfig:
        from kubernetes.client.configuration import Configuration
        from kubernetes.config.kube_config import KubeConfigLoader

        document = copy.deepcopy(document)
        user, cluster = _user_and_cluster(document, self._context)
        # If a plugin fails, the client would go on without credentials; if it hangs, the client would wait for ever.
        plugin = user.pop("exec", None) if not user.get("token") and not user.get("tokenFile") else None
        configuration = Configuration()
        loader = KubeConfigLoader(document, self._context, config_base_path=str(self._path.parent.resolve()))  # type: ignore[no-untyped-call]  # the client ships a marker but few types
        try:
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]  # as above
        except (AttributeError, KeyError, TypeError) as error:
            if "auth-provider" not in user:
                raise
            raise ValueError(f"users: auth-provider returns no token, use exec instead: {one_line(error)}") from None
        url = split_http_url(configuration.host)
        if plugin is None:
            # An auth-provider's token is read again only when the API server rejects it.
            seconds = inf if "auth-provider" in user else _RELOAD_SECONDS
            return _config(configuration, before, time.monotonic() + seconds)
        _require_tls(url)
        credentials = self._credentials_of(plugin, cluster)
        if credentials.token:
            configuration.api_key["BearerToken"] = f"Bearer {credentials.token}"
        pem = f"{credentials.client_certificate_data}\n{credentials.client_key_data}".strip().encode()
        valid_until = min(self._plugin_credentials_until, time.monotonic() + _RELOAD_SECONDS)
        return _config(configuration, before, valid_until, pem)

    def _credentials_of(self, plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> ExecStatus:
        """Returns the plugin's credentials; runs the plugin first if its last credentials have expired."""
        credentials = self._plugin_credentials
        if credentials is None or time.monotonic() >= self._plugin_credentials_until:
            credentials = run_plugin(plugin, cluster, self._path.parent.resolve())
            self._plugin_credentials = credentials
            self._plugin_credentials_until = time.monotonic() + _seconds_until(credentials.expiration_timestamp)
        return credentials


class ServiceAccount:
    """The service account of the pod that this process runs in."""

    def load(self, before: ClientConfig | None = None, *, rejected: bool = False) -> ClientConfig:  # noqa: ARG002
        """See Kubeconfig. `rejected` makes no difference, because the files are read every time."""
        from kubernetes.client.configuration import Configuration
        from kubernetes.config import ConfigException, load_incluster_config

        configuration = Configuration()
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # as above
            return _config(configuration, before, time.monotonic() + _RELOAD_SECONDS)
        except (ConfigException, *_FAULTY) as error:
            reason = f"this pod has no service account to use instead ({one_line(error)})"
            raise ConfigurationError([f"no kubeconfig was given, and {reason}: set --kubeconfig FILE"]) from None


Credentials = Kubeconfig | ServiceAccount


def credentials_of(kubeconfig: Path | None) -> Credentials:
    """Returns the credentials of the file, or of the pod's service account if no file is given."""
    return Kubeconfig(kubeconfig) if kubeconfig else ServiceAccount()


def _user_and_cluster(document: Any, context_name: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the context's user ({} if it names none) and its cluster.

    Raises:
        ValueError: a field is missing or wrong; the message names it.
    """
    if not isinstance(document, dict):
        raise ValueError("expected a mapping with clusters, users, contexts and current-context")
    if not (name := context_name or document.get("current-context")):
        raise ValueError("current-context: required")
    context = _named(document, "context", name)
    user = _named(document, "user", context["user"]) if context.get("user") else {}
    return user, _named(document, "cluster", context.get("cluster"))


def _named(document: Mapping[str, Any], kind: str, name: object) -> dict[str, Any]:
    """Returns the `kind` (user, cluster, context) of the entry with this name. Raises ValueError if it is missing."""
    entries = document.get(field := f"{kind}s")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{field}: expected a list of entries with name and {kind}")
    entry = next((entry for entry in entries if entry.get("name") == name), None)
    if entry is None:
        raise ValueError(f"{field}: {name!r} not found")
    value = entry.get(kind) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{field}: {name!r}: {kind}: expected a mapping")
    return value


def _config(configuration: Any, before: ClientConfig | None, valid_until: float, pem: bytes = b"") -> ClientConfig:
    """Returns the ClientConfig for a kubernetes.client.Configuration.

    Args:
        pem: the certificate and key that the credential plugin returned, b"" if none.

    Raises:
        OSError, ValueError: a certificate cannot be read, or the token cannot be sent.
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
        raise ValueError("the token contains a line break or another character that a header cannot have")
    return str(token)


def _require_tls(url: SplitResult) -> None:
    if url.scheme != "https":
        raise ValueError(f"{url.geturl()} is not an https URL: the token would be sent unencrypted")


def _tls_context(configuration: Any, authorities: str | None, certificate: bytes) -> ssl.SSLContext:
    context = client_context(authorities, certificate, verified=configuration.verify_ssl)
    if configuration.assert_hostname is False:
        context.check_hostname = False
    return context


def _authorities(configuration: Any) -> str | None:
    """Returns the trusted certificate authorities (PEM), None for those of the system. Raises OSError, ValueError."""
    if not configuration.ssl_ca_cert:
        return configuration.ca_cert_data or None
    authorities = Path(configuration.ssl_ca_cert).read_text("ascii")
    if not authorities.strip():  # with an empty text, the ssl module would trust the system's authorities
        raise ValueError("the certificate authority is empty or not base64")
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
    """Returns the seconds until credentials that expire at `timestamp` must be renewed.

    Raises:
        ValueError: `timestamp` is not in RFC 3339.
    """
    if not timestamp:
        return inf
    valid_seconds = datetime.fromisoformat(timestamp).timestamp() - time.time()
    return max(valid_seconds - _BEFORE_EXPIRY_SECONDS, _LEAST_SECONDS)
