"""Makes the first call to an API server, for commands: with a short limit, advice on a failure, and the version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from extender.cluster.http.kube_client import KubeClient
from extender.errors import ClusterError, Refused

# No command can do without these kinds. If another kind cannot be read, a note says what is left out.
NEEDED = ("Node", "Pod")
FIRST_CALL_SECONDS = 4.0
FORBIDDEN = 403


@contextmanager
def connection_advice() -> Iterator[None]:
    """Adds advice to the error if the `with` block cannot connect to the API server."""
    try:
        yield
    except Refused as error:
        raise ClusterError(
            f"{error}; check that the API server is up, and the server address in the kubeconfig's context"
        ) from None


class _VersionInfo(msgspec.Struct, rename="camel"):
    """The part of apimachinery's version.Info that matters here."""

    git_version: str = ""


_VERSION = msgspec.json.Decoder(_VersionInfo)


def reported_version(client: KubeClient) -> str:
    """Returns the version of the API server, as v1.37.1. Raises ClusterError if it is not served in time."""
    return client.call_for(_VERSION.decode, "GET", "/version", b"", timeout_seconds=FIRST_CALL_SECONDS).git_version
