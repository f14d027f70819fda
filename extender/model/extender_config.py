"""Defines the configuration of another extender. Source: k8s.io/kube-scheduler/config/v1, Extender.

Stores the JSON of pods and nodes, because other extenders receive whole objects.

The structs of the model have only the fields that this package uses; another extender may need more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import msgspec

from extender.errors import ConfigurationError
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Container, Pod

DEFAULT_TIMEOUT_SECONDS = 5.0
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class TLSConfig:
    """The certificates for calls to an extender. If both a file and PEM data are given, the data is used.

    Attributes:
        verified: False if the extender's certificate is not checked.
        server_name: the name that the certificate must have; empty means the host of the URL.
    """

    verified: bool = True
    server_name: str = ""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    ca_data: bytes = b""
    cert_data: bytes = b""
    key_data: bytes = b""


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """An extender that a policy configures: its URL and its verbs. A verb that is empty is not called.

    Attributes:
        timeout_seconds: the time limit for one call, from the first byte sent to the last byte received.
        node_cache_capable: True if the extender receives only the names of nodes instead of whole nodes.
        managed_resources: the extender is called only for pods that request one of these resources. If this is
            empty, the extender is called for all pods.
        ignored_resources: the managed resources that the scheduler ignores, because only the extender considers them.
        ignorable: True if pods are scheduled without the extender when a call to it fails.
    """

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    tls: TLSConfig = TLSConfig()
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    node_cache_capable: bool = False
    managed_resources: frozenset[str] = frozenset()
    ignored_resources: frozenset[str] = frozenset()
    ignorable: bool = False

    @property
    def url(self) -> SplitResult:
        """The parts of `url_prefix`. Raises ConfigurationError if it is not a URL that can be called."""
        try:
            url = urlsplit(self.url_prefix)
            is_usable = url.scheme in ("http", "https") and url.hostname and (url.port or 1)
        except ValueError:
            is_usable = False
        if not is_usable:
            what = f"expected a URL, like http://127.0.0.1:8888/scheduler, got {self.url_prefix!r}"
            raise ConfigurationError([f"extender: urlPrefix: {what}"])
        return url

    def is_interested(self, pod: Pod) -> bool:
        """Returns True if the extender is called for the pod (upstream HTTPExtender.IsInterested)."""
        if not self.managed_resources:
            return True
        containers = (*pod.containers, *pod.init_containers)
        return any(_uses(container, self.managed_resources) for container in containers)


def _uses(container: Container, names: Collection[str]) -> bool:
    resources = container.resources
    if resources is None:
        return False
    return any(name in names for name in (*(resources.requests or ()), *(resources.limits or ())))


class WholePod(Pod, frozen=True):
    """A pod with its whole JSON, as `document` returns it."""

    document: bytes = b""


class WholeNode(Node, frozen=True):
    """A node with its whole JSON, as `document` returns it."""

    document: bytes = b""


WHOLE: Mapping[type[Object], type[Object]] = {Pod: WholePod, Node: WholeNode}


def document(raw: bytes | msgspec.Raw, *, managed: bool) -> bytes:
    """Returns an object's JSON as kube-scheduler sends it: without kind and apiVersion.

    `managed` is True to keep metadata.managedFields. kube-scheduler drops this field from pods, but not from nodes.

    Raises:
        msgspec.DecodeError: `raw` is not a JSON object.
    """
    fields = {name: value for name, value in _FIELDS.decode(raw).items() if name not in ("kind", "apiVersion")}
    if managed:
        return _ENCODE(fields)
    metadata = _FIELDS.decode(fields.get("metadata", b"{}"))
    metadata.pop("managedFields", None)
    return _ENCODE({**fields, "metadata": metadata})


def document_of(obj: Object) -> bytes:
    """Returns the JSON that the object was read from. If this JSON was not stored, encodes the struct's fields."""
    original: bytes = getattr(obj, "document", b"")
    return original or _ENCODE(obj)
