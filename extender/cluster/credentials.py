"""Reads the address of an API server and the credentials from kubeconfig files or a service account.

Files are merged by kubectl's rules (`kubectl config view --flatten`). The KubeConfigMerger of the `kubernetes` client
would take the current context of the last file instead of the first. The client is imported on first use only, because
it takes 9 MiB and 0.1 s.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
import yaml

from extender.cluster.pool import Endpoint, address_of, client_context, content, one_line, split_http_url
from extender.config.cluster_access import ClusterAccess
from extender.errors import ConfigurationError
from extender.runtime.text import listed

Document = dict[str, Any]
_KINDS = ("cluster", "user", "context")
_PATHS = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
    "context": (),
}
PLUGIN_SECONDS = 20.0
_SHOWN_CHARACTERS = 300
_MOST_NAMES = 5


def merged(paths: Sequence[Path]) -> Document:
    """Merges the files into one document. If two files have the same entry, the first file counts.

    If two files name a current context, the first file counts, too. Relative paths become absolute, because each is
    relative to the folder of its file. Files that do not exist are skipped, but at least one file must exist.

    Raises:
        ConfigurationError: a file cannot be read, is malformed, or has two entries with one name.
    """
    existing = [path for path in paths if path.exists()] or paths[:1]
    documents = [_read(path) for path in existing]
    result: Document = {"current-context": ""}
    for document in documents:
        result["current-context"] = result["current-context"] or document.get("current-context") or ""
    for kind in _KINDS:
        entries: dict[str, Document] = {}
        for document in documents:
            for entry in document[f"{kind}s"]:
                entries.setdefault(entry["name"], entry)
        result[f"{kind}s"] = list(entries.values())
    return result


def _read(path: Path) -> Document:
    if not path.is_file():
        reason = "not a file" if path.exists() else "no such file"
        raise ConfigurationError([f"kubeconfig {path}: {reason}"])
    try:
        return _checked(yaml.safe_load(path.read_bytes()), path.parent.absolute())
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError([f"kubeconfig {path}: {one_line(error)}"]) from None


def _checked(document: Any, folder: Path) -> Document:
    """Checks that the document's entries are well formed, and makes its paths absolute. Raises ValueError."""
    document = {} if document is None else document
    if not isinstance(document, dict):
        raise ValueError("expected a mapping with clusters, users, contexts and current-context")
    lists = {f"{kind}s": list(_entries(document, kind, folder)) for kind in _KINDS}
    return {**document, **lists}


def _entries(document: Document, kind: str, folder: Path) -> Iterator[Document]:
    field, names = f"{kind}s", set()
    entries = document.get(field) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{field}: expected a list of entries with name and {kind}")
    for entry in entries:
        name, value = str(entry.get("name") or ""), entry.get(kind) or {}
        if name in names:
            raise ValueError(f"{field}: {name!r} occurs twice")
        if not isinstance(value, dict):
            raise ValueError(f"{field}: {name!r}: {kind}: expected a mapping")
        names.add(name)
        yield {"name": name, kind: _with_absolute_paths(value, kind, folder)}


def _with_absolute_paths(value: Document, kind: str, folder: Path) -> Document:
    paths: Document = {field: str(folder / value[field]) for field in _PATHS[kind] if value.get(field)}
    plugin = value.get("exec")
    # A name without a slash is looked up in $PATH.
    if isinstance(plugin, Mapping) and os.sep in str(plugin.get("command") or ""):
        paths["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return {**value, **paths}


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The credentials that a plugin returns (upstream ExecCredentialStatus).

    Attributes:
        expiration_timestamp: in RFC 3339; "" if the credentials do not expire.
    """

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: ExecStatus


_CREDENTIAL = msgspec.json.Decoder(_ExecCredential)


def run_plugin(spec: Mapping[str, Any], cluster: Mapping[str, Any]) -> ExecStatus:
    """Runs a credential plugin, and returns its credentials. `spec` is the `exec` of a kubeconfig's user.

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
    output = _output_of(command, {**os.environ, **environment})
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


def _output_of(command: list[str], environment: Mapping[str, str]) -> bytes:
    # The plugin gets a process group of its own, so that its child processes can be killed with it.
    process = subprocess.Popen(  # noqa: S603  the kubeconfig names the command, as it names the trusted CA
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
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


_RELOAD_SECONDS = 60.0  # a service account's token is valid for an hour, and is replaced ten minutes before it expires
_BEFORE_EXPIRY_SECONDS, _LEAST_SECONDS = 20.0, 10.0
# A header's name may have these, and what `quote` leaves as it is: letters, digits and _.-~
_HEADER_SIGNS = "!#$&'*+^`|"
# the errors that a malformed file can cause
_FAULTY = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True, eq=False)
class ClientConfig:
    """The address of the API server and the credentials, read at the same time.

    Attributes:
        base: the prefix of every path of the API, usually "".
        authorization: the Authorization header; None if there is no token.
        impersonation: the headers that ask the API server to act as another user.
        valid_until: when the credentials must be read again, in monotonic seconds.
        material: the settings that the endpoint was created from. If they change, a new endpoint is needed.
    """

    endpoint: Endpoint
    base: str
    authorization: str | None
    impersonation: tuple[tuple[str, str], ...]
    valid_until: float
    material: tuple[object, ...]


class Kubeconfig:
    """Kubeconfig files, and one of their contexts; by default the current context."""

    def __init__(
        self, *paths: Path, context: str | None = None, user: str | None = None, groups: Sequence[str] = ()
    ) -> None:
        """Reads nothing yet. `user` and `groups`, if given, are impersonated in place of those in the kubeconfig."""
        self._paths = paths
        self._context = context
        self._user = user
        self._groups = groups
        self._plugin_credentials: ExecStatus | None = None
        self._plugin_credentials_until = 0.0

    def load(self, before: ClientConfig | None = None, *, rejected: bool = False) -> ClientConfig:
        """Reads the credentials. Reuses the endpoint of `before` if its settings have not changed.

        Args:
            rejected: True if the API server no longer accepts the credentials of `before`, so that a credential plugin
                must run again.

        Raises:
            ConfigurationError: the credentials cannot be read.
        """
        document = merged(self._paths)
        from kubernetes.config import ConfigException

        if rejected:
            self._plugin_credentials = None
        try:
            return self._read(document, before)
        except (ConfigException, *_FAULTY) as error:
            paths = os.pathsep.join(map(str, self._paths))
            raise ConfigurationError([f"kubeconfig {paths}: {one_line(error)}"]) from None

    def _read(self, document: Document, before: ClientConfig | None) -> ClientConfig:
        from kubernetes.client.configuration import Configuration
        from kubernetes.config.kube_config import KubeConfigLoader

        user, cluster = _user_and_cluster(document, self._context)
        impersonation = _impersonation_of(user, self._user, self._groups)
        # The plugin runs here, because the `kubernetes` client ignores its failure, and waits forever if it hangs.
        plugin = user.pop("exec", None) if not user.get("token") and not user.get("tokenFile") else None
        configuration = Configuration()
        loader = KubeConfigLoader(document, self._context, config_base_path="")  # type: ignore[no-untyped-call]  # the package is marked as typed, but this class is not
        try:
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        except (AttributeError, KeyError, TypeError) as error:
            if "auth-provider" not in user:
                raise
            raise ValueError(f"users: auth-provider returns no token, use exec instead: {one_line(error)}") from None
        url = split_http_url(configuration.host)
        if plugin is None:
            # An auth-provider's token is read again only when the API server rejects it.
            seconds = inf if "auth-provider" in user else _RELOAD_SECONDS
            return _config(configuration, before, time.monotonic() + seconds, impersonation)
        _require_tls(url)
        credentials = self._credentials_of(plugin, cluster)
        if credentials.token:
            configuration.api_key["BearerToken"] = f"Bearer {credentials.token}"
        pem = f"{credentials.client_certificate_data}\n{credentials.client_key_data}".strip().encode()
        valid_until = min(self._plugin_credentials_until, time.monotonic() + _RELOAD_SECONDS)
        return _config(configuration, before, valid_until, impersonation, pem)

    def _credentials_of(self, plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> ExecStatus:
        """Returns the plugin's credentials; runs the plugin first if its last credentials have expired."""
        credentials = self._plugin_credentials
        if credentials is None or time.monotonic() >= self._plugin_credentials_until:
            credentials = run_plugin(plugin, cluster)
            self._plugin_credentials = credentials
            self._plugin_credentials_until = time.monotonic() + _seconds_until(credentials.expiration_timestamp)
        return credentials


class ServiceAccount:
    """The service account of the pod that this process runs in."""

    def __init__(self, user: str | None = None, groups: Sequence[str] = ()) -> None:
        """Reads nothing yet. `user` and `groups`, if given, are impersonated."""
        self._user = user
        self._groups = groups

    def load(self, before: ClientConfig | None = None, *, rejected: bool = False) -> ClientConfig:  # noqa: ARG002
        """Reads the credentials. Reuses the endpoint of `before` if its settings have not changed.

        `rejected` is ignored, because every call reads the files again.
        """
        from kubernetes.client.configuration import Configuration
        from kubernetes.config import ConfigException, load_incluster_config

        configuration = Configuration()
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            impersonation = _impersonation_of({}, self._user, self._groups)
            return _config(configuration, before, time.monotonic() + _RELOAD_SECONDS, impersonation)
        except (ConfigException, *_FAULTY) as error:
            reason = f"there is no service account of a pod to use instead ({one_line(error).rstrip('.')})"
            raise ConfigurationError([f"no kubeconfig was given, and {reason}: set --kubeconfig FILE"]) from None


Credentials = Kubeconfig | ServiceAccount


def credentials_of(access: ClusterAccess) -> Credentials:
    """Returns the credentials of the kubeconfig files, or of the pod's service account if no file is given."""
    if access.kubeconfigs:
        return Kubeconfig(*access.kubeconfigs, context=access.context, user=access.user, groups=access.groups)
    return ServiceAccount(access.user, access.groups)


def _user_and_cluster(document: Document, context_name: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the context's user ({} if the context names no user) and cluster. Raises ValueError if one is missing."""
    if not (name := context_name or document["current-context"]):
        if not document["contexts"]:
            raise ValueError("it has no contexts; expected a kubeconfig, as kubectl reads it")
        raise ValueError(f"current-context: required, or --context with one of: {_names_in(document, 'context')}")
    context = _named(document, "context", name)
    user = _named(document, "user", context["user"]) if context.get("user") else {}
    return user, _named(document, "cluster", context.get("cluster"))


def _named(document: Document, kind: str, name: object) -> dict[str, Any]:
    """Returns the user, cluster or context with this name. Raises ValueError if the document has no such entry."""
    value: dict[str, Any] | None = next((entry[kind] for entry in document[f"{kind}s"] if entry["name"] == name), None)
    if value is None:
        raise ValueError(f"{kind}s: {name!r} not found; there are: {_names_in(document, kind)}")
    return value


def _names_in(document: Document, kind: str) -> str:
    return listed((str(entry["name"]) for entry in document[f"{kind}s"]), _MOST_NAMES) or "none"


def _impersonation_of(
    user: Mapping[str, Any], user_option: str | None, groups_option: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Returns the headers that ask the API server to act as another user, as client-go sends them.

    Args:
        user: the kubeconfig's user, whose fields `as` and `as-groups` name a user and groups to act as.
        user_option, groups_option: a user and groups that replace those two fields.

    Raises:
        ValueError: groups, a UID or extra fields are given, but no user.
    """
    name = user_option or user.get("as") or ""
    headers = [("Impersonate-Group", group) for group in groups_option or user.get("as-groups") or ()]
    if uid := user.get("as-uid"):
        headers.append(("Impersonate-Uid", uid))
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, _HEADER_SIGNS)}", value) for value in values]
    if headers and not name:
        raise ValueError("groups, a UID or extra fields to impersonate are given without a user to impersonate")
    named = [("Impersonate-User", name), *headers] if name else []
    return tuple((key, _header_value(key, str(value))) for key, value in named)


def _header_value(header: str, value: str) -> str:
    """Converts the value to text that becomes UTF-8 when the header is encoded as Latin-1.

    Raises:
        ValueError: the value contains a character that a header cannot have.
    """
    if not value.isprintable():
        raise ValueError(f"the value of {header} contains a line break or another character that a header cannot have")
    return value.encode().decode("latin-1")


def _config(
    configuration: Any,
    before: ClientConfig | None,
    valid_until: float,
    impersonation: tuple[tuple[str, str], ...],
    pem: bytes = b"",
) -> ClientConfig:
    """Returns the ClientConfig for a kubernetes.client.Configuration.

    Args:
        pem: the certificate and key from the credential plugin; b"" if it returned none.

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
    return ClientConfig(endpoint, url.path.rstrip("/"), authorization, impersonation, valid_until, material)


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
    """Returns the trusted certificate authorities (PEM); None for the system's. Raises OSError or ValueError."""
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
    """Returns the seconds until credentials that expire at `timestamp` must be read again.

    Raises:
        ValueError: `timestamp` is not in RFC 3339.
    """
    if not timestamp:
        return inf
    valid_seconds = datetime.fromisoformat(timestamp).timestamp() - time.time()
    return max(valid_seconds - _BEFORE_EXPIRY_SECONDS, _LEAST_SECONDS)
