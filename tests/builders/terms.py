"""Selector requirements and affinity terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.builders.builder import Object


def expression(key: str, operator: str, *values: str) -> Object:
    """A requirement of a label or node selector: `expression("disktype", "In", "ssd", "nvme")`."""
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def node_term(*expressions: Object, fields: Iterable[Object] = ()) -> Object:
    """A node selector term; all of its expressions and fields must match."""
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {name: requirements for name, requirements in term.items() if requirements}


def pod_term(
    topology_key: str, *, labels: Mapping[str, str] | None = None, expressions: Iterable[Object] = (), **more: Any
) -> Object:
    """A pod affinity term; `more` are the API's fields (namespaces, namespaceSelector, matchLabelKeys, ...)."""
    requirements = list(expressions)
    selector: Object = {} if labels is None else {"matchLabels": dict(labels)}
    selector |= {"matchExpressions": requirements} if requirements else {}
    return {"topologyKey": topology_key, "labelSelector": selector, **more}
