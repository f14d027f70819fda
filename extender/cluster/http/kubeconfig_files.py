"""Reads kubeconfig files and merges them by kubectl's rules (`kubectl config view --flatten`).

The KubeConfigMerger of the `kubernetes` client is not used, because it takes the current context of the last file
instead of the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from extender.cluster.http.endpoint import one_line
from extender.errors import ConfigurationError

Document = dict[str, Any]
_KINDS = ("cluster", "user", "context")
_PATHS = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
    "context": (),
}


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
