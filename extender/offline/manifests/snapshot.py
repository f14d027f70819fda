"""Writes a cluster as one JSON list, with all kinds and fields that scheduling reads; redacts it if asked."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import Any

import msgspec

from extender.model.meta import Object
from extender.model.redaction import Redaction, without_manifests
from extender.offline.manifests.objects import READ_KINDS


def write_snapshot(
    objects: Iterable[Object],
    *,
    redaction: Redaction | None = None,
    compress: bool = False,
    kubernetes_version: str = "",
) -> bytes:
    """Returns the objects as JSON: a v1 List.

    Leaves out fields that no scheduling rule reads, and annotations in which tools keep a whole manifest. A redacted
    snapshot has only those annotations that kube-scheduler reads, because others may contain any text.

    Args:
        redaction: replaces names, label values, images and similar texts by hashes that sort as these texts do.
        compress: compresses the JSON with gzip.
        kubernetes_version: the version of the API server, which answers about the snapshot follow; "" if it is unknown.
    """
    written = [obj for obj in objects if type(obj).__name__ in READ_KINDS]
    if redaction is not None:
        redaction.keep_order(written)
    items = [_item(obj, redaction) for obj in written]
    version = {"kubernetesVersion": kubernetes_version} if kubernetes_version else {}
    data = msgspec.json.encode({"apiVersion": "v1", "kind": "List", **version, "items": items})
    return gzip.compress(data, mtime=0) if compress else data


def _item(obj: Object, redaction: Redaction | None) -> dict[str, Any]:
    kind = READ_KINDS[type(obj).__name__]
    item = msgspec.to_builtins(without_manifests(obj)) if redaction is None else redaction.redact(obj)
    return {"apiVersion": kind.api_version, "kind": kind.name, **item}
