"""Serves the tools with the SDK of the Model Context Protocol, which is an optional dependency."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from extender.cli.mcp_tools import Tools
from extender.cli.output import os_error_text
from extender.errors import ExtenderError, TooExpensive
from extender.runtime.product_version import product_version
from extender.runtime.questions import in_child

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
