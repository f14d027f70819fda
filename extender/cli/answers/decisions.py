"""Prints what a running process decided about pods, for `extender explain --from` and `--in-cluster`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from extender.cli.output.listing import in_order
from extender.cli.output.output_formats import Output, say, show
from extender.cli.running import RunningReplica
from extender.errors import ExtenderError, UnknownPod
from extender.offline.documents.document_kinds import DocumentKind, headed
from extender.runtime.text import aligned

if TYPE_CHECKING:
    from extender.cli.output.jsonpath import JsonPath

_PATH = "/debug/decisions"
_CHECK = "check that it is `extender serve` or `schedule`"
_OK = 200
_NOT_FOUND = 404
_NONE = b'{"pods":[]}'


def print_decisions(replicas: Iterable[RunningReplica], key: str, output: Output) -> None:
    """Prints the decisions about the pod NAMESPACE/NAME, the oldest first. Raises UnknownPod, ExtenderError."""
    document = _document(replicas, key)
    if not output.is_text:
        show(headed(DocumentKind.DECISIONS, document), output)
        return
    _print_table((key, decision) for decision in document["decisions"])


def print_last_decisions(
    replicas: Iterable[RunningReplica], namespace: str, sort_by: JsonPath | None, output: Output
) -> None:
    """Prints the last decision about each pod of `namespace`; "" means all namespaces. Raises ExtenderError."""
    document = _document(replicas)
    pods = [each for each in document["pods"] if not namespace or each["pod"].startswith(f"{namespace}/")]
    pods = in_order(pods, sort_by)
    if not output.is_text:
        show(headed(DocumentKind.DECISIONS, {**document, "pods": pods}), output)
    elif pods:
        _print_table((decision["pod"], decision) for decision in pods)
    else:
        pods_of = f"pods in the namespace {namespace}" if namespace else "pods"
        click.echo(f"no decisions about {pods_of} are remembered", err=True)


def _document(replicas: Iterable[RunningReplica], key: str = "") -> dict[str, Any]:
    """Returns the answer of the first replica that has decisions, because only the leader decides."""
    path = f"{_PATH}?{urlencode({'pod': key})}" if key else _PATH
    for server in replicas:
        status, body = server.get(path)
        if status == _OK and body.strip() != _NONE:
            break
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    if status == _NOT_FOUND and key and "no decision" in str(document.get("error")):
        raise UnknownPod(document["error"])
    if status != _OK:
        reason = document.get("error") or f"{_CHECK}, with decisionsSeconds above 0"
        raise ExtenderError(f"{server}{_PATH} answers {status}: {reason}")
    if not isinstance(document.get("decisions" if key else "pods"), list):
        raise ExtenderError(f"{server}{_PATH} answers, but not with decisions: {_CHECK}")
    return document


def _print_table(decisions: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    lines = [("TIME", "POD", "DECISION", "OUTCOME")]
    for pod, decision in decisions:
        reasons = ", ".join(f"{nodes} {reason}" for reason, nodes in decision.get("reasons", {}).items())
        victims = f"; victims: {', '.join(decision['victims'])}" if decision.get("victims") else ""
        outcome = f"{decision['outcome']}{f' ({reasons})' if reasons else ''}{victims}"
        time = datetime.fromtimestamp(decision["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines.append((time, pod, decision["what"], outcome))
    say("\n".join(aligned(lines)))
