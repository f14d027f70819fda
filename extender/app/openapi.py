"""Describes the pages that answer in JSON as an OpenAPI document, which is served at /openapi.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from pydantic.json_schema import models_json_schema

from extender.app.recording.past_decisions import DECISIONS
from extender.cache.debugger import Dump, Report
from extender.offline.documents import page_documents
from extender.offline.what_if.hypothetical import SimulationRequest
from extender.runtime.product_version import product_version
from extender.scheduler.modeler import QueueStatus
from extender.web.access import CONFIGZ, SIMULATE, UI
from extender.web.answers import JSON, Answer
from extender.web.pages import COMPARE, DUMP, LOG_LEVEL

Schema = dict[str, Any]
DEBUG_PODS = "/debug/pods"
_REFERENCES = "#/components/schemas/"
_STRUCTS = (Dump, Report, SimulationRequest, QueueStatus)
_DESCRIPTION = (
    "The pages of `extender serve` and `extender schedule` that answer in JSON. Only this machine and clients with a "
    "certificate may use them. The calls of kube-scheduler are not among them; k8s.io/kube-scheduler/extender/v1 "
    "defines those."
)
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


class _Operation(NamedTuple):
    """An HTTP method of a path, for example GET /openapi.json.

    Attributes:
        answer: the name of the schema of the answer.
        query: the query parameters, each with its meaning.
        body: the name of the schema of the request's body; "" if the request has no body.
    """

    method: str
    path: str
    summary: str
    answer: str
    query: Mapping[str, str] = {}
    body: str = ""


_POD = {"pod": "NAMESPACE/NAME of a pod"}
_GROUP = {"group": "NAMESPACE/NAME of a pod group", "kind": "PodGroup or CompositePodGroup"}
_NODE = {"node": "the name of a node"}
_STEP = {"step": "for a recording: show the cluster before this step"}
_PART = {"at": "a JSON pointer (RFC 6901); only this part of the answer is returned"}
_OPERATIONS = (
    _Operation("post", SIMULATE, "says if pods would fit, also on new nodes", "Hypothetical", body="SimulationRequest"),
    _Operation("get", f"{UI}/pending.json", "the pending pods with their causes", "PendingPage", {**_STEP, **_PART}),
    _Operation("get", f"{UI}/pod.json", "why a pod is pending", "PodPage", {**_POD, **_STEP, **_PART}),
    _Operation("get", f"{UI}/group.json", "why a pod group is pending", "GroupPage", {**_GROUP, **_STEP, **_PART}),
    _Operation("get", f"{UI}/nodes.json", "all nodes with their resources", "NodesPage", {**_STEP, **_PART}),
    _Operation("get", f"{UI}/node.json", "one node", "NodePage", {**_NODE, **_POD, **_STEP, **_PART}),
    _Operation(
        "get",
        f"{UI}/compare.json",
        "where another configuration places the pending pods",
        "ComparePage",
        {"with": "the name of the other configuration", **_STEP, **_PART},
    ),
    _Operation("get", f"{UI}/steps.json", "the steps of a recording", "StepsPage", _PART),
    _Operation("get", DECISIONS, "past decisions about a pod, or the last one about each pod", "DecisionsPage", _POD),
    _Operation("get", DUMP, "the nodes and pods in the cache", "Dump"),
    _Operation("get", DEBUG_PODS, "only extender schedule: the pods that are not placed yet", "QueueStatus"),
    _Operation("post", COMPARE, "compares the cache with the API server", "Report"),
    _Operation("post", LOG_LEVEL, "sets the log level", "LogLevel", {"level": "debug, info, warning or error"}),
    _Operation("get", CONFIGZ, "the settings in force", "Configz"),
)


@lru_cache(maxsize=1)
def openapi() -> Schema:
    """Returns the description of all pages that answer in JSON."""
    paths: dict[str, Schema] = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "extender",
            "version": product_version(),
            "description": _DESCRIPTION,
        },
        "paths": paths,
        "components": {"schemas": dict(_schemas())},
    }


def openapi_page(_query: Mapping[str, list[str]], _accept: str) -> Answer:
    return Answer(200, msgspec.json.format(msgspec.json.encode(openapi())) + b"\n", JSON)


def _described(operation: _Operation) -> Schema:
    described: Schema = {
        "summary": operation.summary,
        "responses": {
            "200": {"description": "the answer", "content": _content(operation.answer)},
            "default": {"description": "why there is no answer", "content": _content("Error")},
        },
    }
    if operation.query:
        described["parameters"] = [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in operation.query.items()
        ]
    if operation.body:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    return described


def _content(name: str) -> Schema:
    return {JSON: {"schema": {"$ref": f"{_REFERENCES}{name}"}}}


def _schemas() -> Iterator[tuple[str, Schema]]:
    """Yields the name and the schema of each component."""
    models = [(model, "validation") for model in page_documents.MODELS]
    _, definitions = models_json_schema(models, ref_template=f"{_REFERENCES}{{model}}")  # type: ignore[arg-type]  # "validation" is a Literal
    yield from definitions["$defs"].items()
    _, structs = msgspec.json.schema_components(_STRUCTS, ref_template=f"{_REFERENCES}{{name}}")
    yield from structs.items()
    yield "Error", _ERROR
    yield "Configz", {"type": "object", "additionalProperties": {"type": "object"}}
