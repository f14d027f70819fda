"""A ConfigMap, read once: where a policy may stand."""

from __future__ import annotations

from urllib.parse import quote

from extender.cluster.http.connection import Connection


def read_config_map(connection: Connection, namespace: str, name: str) -> bytes:
    """Its JSON.

    Raises:
        ClusterError: it is not there, or may not be read.
    """
    return connection.call("GET", f"/api/v1/namespaces/{quote(namespace, '')}/configmaps/{quote(name, '')}", b"")
