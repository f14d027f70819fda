"""Serves the tools of `extender mcp` with the SDK of the Model Context Protocol, which is an optional dependency.

Each tool that an assistant can call returns the document that the command of the same name prints. A tool takes names
and the text of manifests, never the paths of files. A policy that an assistant writes may name built-in plugins only,
because importing a module runs its code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial, wraps
from typing import Annotated, Any, Literal, ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from extender.cli.doctor import extender_at
from extender.cli.document_kinds import Document, DocumentKind, headed, with_notes
from extender.cli.output import os_error_text
from extender.cli.source_options import Source, known_pod, pod_key
from extender.cli.what_if import scaled, target
from extender.config.cluster_access import with_default_files
from extender.errors import ConfigurationError, ExtenderError, TooExpensive
from extender.offline.explain.explanation import Explanation, explain_workload
from extender.offline.explain.group import explain_group
from extender.offline.explain.overview import pending
from extender.offline.manifests.templates import Workload, read_workloads
from extender.offline.nodes import node_usage
from extender.offline.plan.plan import find_moves, plan
from extender.offline.what_if.capacity import capacity
from extender.offline.what_if.comparison import compare
from extender.offline.what_if.result import simulate
from extender.offline.what_if.scenario import Scenario
from extender.policy.library import Library
from extender.policy.loading import load
from extender.runtime.process import product_version
from extender.runtime.questions import in_child
from extender.runtime.text import whole_number

_P = ParamSpec("_P")
_INSTRUCTIONS = (
    "Answers about the scheduling of a Kubernetes cluster, computed by an engine that decides as kube-scheduler does. "
    "Begin with pending_pods. Quote the messages and numbers of an answer as they are: they are exact. "
    "Nothing here changes the cluster."
)
_READS_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def server_of(tools: Tools) -> MCPServer[Any]:
    """Returns a Model Context Protocol server that offers `tools` to an assistant.

    The server runs one call at a time, because an answer may take a whole CPU; each in its own process, whose time and
    memory are limited.
    """
    server: MCPServer[Any] = MCPServer(
        "podseat", instructions=_INSTRUCTIONS, version=product_version(), log_level="WARNING"
    )
    turn = threading.Lock()
    for tool in tools.all():
        server.add_tool(_guarded(tool, turn, tools.timeout_seconds), annotations=_READS_ONLY)
    return server


def _guarded(tool: Callable[_P, dict[str, Any]], turn: threading.Lock, seconds: float) -> Callable[_P, dict[str, Any]]:
    @wraps(tool)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> dict[str, Any]:
        with turn:
            document, fault = _answer(partial(tool, *args, **kwargs), seconds)
        if fault:
            raise ToolError(fault)
        return document

    return call


def _answer(question: Callable[[], dict[str, Any]], seconds: float) -> tuple[dict[str, Any], str]:
    """Returns the document that answers the question, and ""; if there is none, an empty one and the reason."""

    def answer() -> tuple[dict[str, Any], str]:
        try:
            return question(), ""
        except ExtenderError as error:
            return {}, str(error)
        except OSError as error:
            return {}, os_error_text(error)

    try:
        return in_child(answer, seconds)
    except TooExpensive as error:
        return {}, str(error)


_LONGEST_QUOTE = 40
MOST_ENTRIES = 40
"""The largest number of entries of a list or mapping in an answer, because an assistant need not read more."""

Pod = Annotated[str, Field(description="NAMESPACE/NAME of a pod")]
Names = Annotated[Sequence[str], Field(description="names of nodes, or KEY=VALUE for all nodes with a label")]
Manifest = Annotated[str, Field(description="YAML of a Pod, Deployment, StatefulSet, Job ...")]


class Tools:
    """The MCP tools, which answer questions about the cluster that `source` names.

    Args:
        url: the urlPrefix of an extender that `doctor` checks; None if there is no extender to check.

    Attributes:
        timeout_seconds: how long a call may take; 0 means that there is no limit.
    """

    def __init__(self, source: Source, url: str | None = None) -> None:
        self.timeout_seconds = source.timeout_seconds
        self._source = source
        self._url = url

    def all(self) -> Sequence[Callable[..., Document]]:
        """Returns all tools, to be registered with the MCP server."""
        return (
            self.pending_pods,
            self.explain_pod,
            self.explain_manifest,
            self.explain_group,
            self.nodes,
            self.simulate,
            self.capacity,
            self.plan,
            self.compare,
            self.doctor,
        )

    def pending_pods(
        self, namespace: Annotated[str, Field(description="only this namespace; empty for all")] = ""
    ) -> Document:
        """Lists the pending pods with the cause that keeps each pending, the most frequent cause first."""
        state, unread = self._source.load(namespace=namespace, needs_nodes=False)
        return _document(DocumentKind.PENDING_PODS, pending(state, namespace).to_dict(), unread)

    def explain_pod(self, pod: Pod) -> Document:
        """Explains why a pod is pending or where it would be placed, and the smallest changes that would let it run."""
        key = pod_key(pod, self._source.default_namespace())
        state, unread = self._source.load(namespace=key.partition("/")[0], needs_nodes=False)
        explanation = Explanation(state, known_pod(state, key), unread, find_moves=find_moves)
        return _document(DocumentKind.EXPLANATION, explanation.to_dict())

    def explain_manifest(self, manifest: Manifest) -> Document:
        """Explains where the first pod of a manifest would be placed, or why it would be pending; creates nothing."""
        (workload, *_) = self._workloads(manifest)
        state, unread = self._source.load()
        explanation = explain_workload(state, workload)
        explanation.notes = [*explanation.notes, *unread]
        return _document(DocumentKind.EXPLANATION, explanation.to_dict())

    def explain_group(
        self,
        group: Annotated[str, Field(description="NAMESPACE/NAME of a pod group")],
        kind: Literal["PodGroup", "CompositePodGroup"] = "PodGroup",
    ) -> Document:
        """Explains why a pod group (gang) is pending: how many members can be placed together, what the others lack."""
        state, unread = self._source.load(namespace=group.partition("/")[0])
        return _document(DocumentKind.GROUP_EXPLANATION, explain_group(state, kind, group).to_dict(), unread)

    def nodes(self) -> Document:
        """Lists the nodes with their allocatable and requested resources: cpu in millicores, memory in bytes."""
        state, unread = self._source.load()
        return _document(DocumentKind.NODE_USAGE, {"nodes": [usage.to_dict() for usage in node_usage(state)]}, unread)

    def simulate(
        self,
        drain: Names = (),
        cordon: Names = (),
        remove_nodes: Names = (),
        add_nodes: Annotated[Sequence[str], Field(description="NODE=N: add N nodes like this one")] = (),
        scale: Annotated[Sequence[str], Field(description="NAMESPACE/KIND/NAME=N, such as shop/deploy/web=20")] = (),
        delete: Annotated[Sequence[str], Field(description="NAMESPACE/POD or NAMESPACE/KIND/NAME to delete")] = (),
        manifest: Annotated[str, Field(description="YAML of pods or workloads to create")] = "",
        replicas: Annotated[int | None, Field(ge=0, description="number of pods for each created workload")] = None,
    ) -> Document:
        """Simulates these changes on a copy of the cluster and places all pending and evicted pods; changes nothing."""
        state, unread = self._source.load()
        namespace = self._source.default_namespace()
        scenario = Scenario(
            drain=drain,
            cordon=cordon,
            remove_nodes=remove_nodes,
            add_nodes=[_copies(each) for each in add_nodes],
            scale=[scaled(each, namespace) for each in scale],
            delete=[target(each, namespace) for each in delete],
            create=[(workload, replicas) for workload in (self._workloads(manifest) if manifest else ())],
        )
        return _document(DocumentKind.SIMULATION, simulate(state, scenario).to_dict(), unread)

    def capacity(
        self,
        manifest: Annotated[str, Field(description="YAML of a pod or workload; or give `workload`")] = "",
        workload: Annotated[str, Field(description="NAMESPACE/KIND/NAME in the cluster, such as shop/deploy/web")] = "",
    ) -> Document:
        """Counts how many more pods of a manifest or workload fit, on which nodes, and what runs out first."""
        if bool(manifest) == bool(workload):
            raise ConfigurationError(["give either manifest or workload"])
        templates: list[Workload | str] = [*self._workloads(manifest)] if manifest else [workload]
        state, unread = self._source.load()
        return _document(DocumentKind.CAPACITY, capacity(state, templates).to_dict(), unread)

    def plan(
        self,
        pods: Annotated[Sequence[str], Field(description="NAMESPACE/NAME of pending pods to place")] = (),
        manifest: Annotated[str, Field(description="YAML of pods or workloads to create after the moves")] = "",
        room_for: Annotated[
            str, Field(description="make room for the most of this: NAMESPACE/KIND/NAME, or `8x nvidia.com/gpu`")
        ] = "",
        empty: Names = (),
        count: Annotated[int | None, Field(ge=1, description="how many of the nodes to empty")] = None,
        keep: Annotated[Sequence[str], Field(description="namespaces, or KEY=VALUE labels, of pods to leave")] = (),
        most_moves: Annotated[int | None, Field(ge=0, description="the most evictions of a plan")] = None,
    ) -> Document:
        """Finds the fewest evictions that place pods, make room or empty nodes, or proves none do; evicts nothing."""
        state, unread = self._source.load()
        namespace = self._source.default_namespace()
        keys = [known_pod(state, pod_key(each, namespace)).key for each in pods]
        found = plan(
            state,
            [*keys, *(self._workloads(manifest) if manifest else ())],
            keep,
            room_for=room_for or None,
            empty_nodes=empty,
            empty_count=count,
            most_moves=most_moves,
        )
        return _document(DocumentKind.PLAN, found.to_dict(), unread)

    def compare(
        self,
        policy: Annotated[str, Field(description="YAML of a KubeSchedulerConfiguration; built-in plugins only")],
        manifest: Annotated[str, Field(description="YAML of pods or workloads to create first")] = "",
        replicas: Annotated[int | None, Field(ge=0, description="number of pods for each created workload")] = None,
    ) -> Document:
        """Compares where the pods are placed under the policy in use and under another one."""
        other = load(policy, Library(imports=False)).scheduler_profiles()
        state, unread = self._source.load()
        scenario = Scenario(create=[(each, replicas) for each in (self._workloads(manifest) if manifest else ())])
        return _document(DocumentKind.COMPARISON, compare(state, state.profiles, other, scenario).to_dict(), unread)

    def doctor(self) -> Document:
        """Checks the installation: permissions, versions, the policy, and the extender if its URL is known."""
        from extender.app.cluster_checks import SERVE, Installation
        from extender.app.doctor import diagnose

        live = None if self._source.cluster is not None else with_default_files(self._source.access)
        if live is None and self._url is None and self._source.policy is None:
            raise ConfigurationError(["nothing to check: the server reads a file, and has neither --url nor --policy"])
        installation = Installation(SERVE, live, extender=extender_at(self._url), policy=self._source.policy)
        findings = [{**asdict(finding), "docs": finding.docs} for finding in diagnose(installation)]
        return brief(headed(DocumentKind.DIAGNOSIS, {"findings": findings}))

    def _workloads(self, manifest: str) -> list[Workload]:
        workloads = read_workloads(manifest.encode(), "the manifest", self._source.default_namespace())
        return list(workloads)


def _copies(argument: str) -> tuple[str, int]:
    name, _, digits = argument.partition("=")
    count = whole_number(digits or "1")
    if not name or count is None:
        raise ConfigurationError([f"add_nodes: {argument[:_LONGEST_QUOTE]}: expected NODE=N"])
    return name, count


def _document(kind: DocumentKind, document: Document, unread: Sequence[str] = ()) -> Document:
    return brief(headed(kind, with_notes(document, unread)))


def brief(document: Document) -> Document:
    """Shortens long lists and mappings, and adds `truncated`: the path of each one -> its former length."""
    truncated: dict[str, int] = {}
    cut = {key: _cut(value, key, truncated) for key, value in document.items()}
    return {**cut, "truncated": truncated} if truncated else cut


def _cut(value: Any, path: str, truncated: dict[str, int]) -> Any:
    if not isinstance(value, Mapping | list):
        return value
    if len(value) > MOST_ENTRIES:
        truncated[path] = len(value)
    if isinstance(value, Mapping):
        first = list(value.items())[:MOST_ENTRIES]
        return {key: _cut(each, f"{path}.{key}", truncated) for key, each in first}
    return [_cut(each, f"{path}[{i}]", truncated) for i, each in enumerate(value[:MOST_ENTRIES])]
