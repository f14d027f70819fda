"""Another extender, as a scheduler's configuration describes it. Source: k8s.io/kube-scheduler/config/v1, Extender."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from extender.model.pod import Container, Pod

DEFAULT_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TLSConfig:
    """The certificates for calls to an extender. Data are PEM, and go before files.

    Attributes:
        verified: whether the extender's certificate is looked at at all.
        server_name: the name wanted in it; empty: that of the URL.
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
    """An extender of a policy: its URL, and its verbs. A verb that is empty is not called.

    Attributes:
        timeout_seconds: for one call, from the first byte sent to the last one received.
        node_cache_capable: it is sent names of nodes, not nodes.
        managed_resources: it is asked about pods that ask for one of these only; none: about all.
        ignored_resources: those of them that nobody but the extender looks at.
        ignorable: pods are scheduled without it when it fails.
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

    def is_interested(self, pod: Pod) -> bool:
        """Returns True if it is asked about the pod (upstream HTTPExtender.IsInterested)."""
        if not self.managed_resources:
            return True
        containers = (*pod.containers, *pod.init_containers)
        return any(_asks_for(container, self.managed_resources) for container in containers)


def _asks_for(container: Container, resources: Collection[str]) -> bool:
    asked = container.resources
    return asked is not None and any(name in resources for name in (*(asked.requests or ()), *(asked.limits or ())))
