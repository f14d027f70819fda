"""`extender` exports exactly what docs/rules.md promises to users."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

import extender
from extender.model.meta import Object
from extender.offline.manifests.objects import to_object
from extender.table import PodInfo, Table
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of

DOCUMENT = Path(__file__).parents[1] / "docs" / "rules.md"
OBJECT = ("name", "namespace", "uid", "key", "labels", "annotations", "controller", "metadata", "spec", "status")
BLOCK = re.compile(r"```\n(BoolColumn\n.*?)```", re.DOTALL)
EXPORTED = {name: getattr(extender, name) for name in extender.__all__}
READ_KINDS: Mapping[str, Any] = {
    name: found
    for name, found in EXPORTED.items()
    if inspect.isclass(found) and issubclass(found, Object) and name not in ("Node", "Pod")
}
"""The kinds that rules read through `ObjectLister`."""
MEMBERS = {
    "Pod": (*OBJECT, "node_name", "priority", "containers", "init_containers", "terminating", "finished"),
    "Node": (*OBJECT, "taints", "allocatable"),
    "NodeInfo": (
        "node",
        "name",
        "labels",
        "annotations",
        "taints",
        "pods",
        "requested",
        "allocatable",
        "images",
    ),
    "PodInfo": ("pod", "priority", "requests", "images", "host_ports"),
    **{name: (*type_.__struct_fields__,) for name, type_ in READ_KINDS.items()},
    "PredicateFunction": ("in_force", "wake"),
    "Table": (
        "nodes.names",
        "nodes.row_of",
        "nodes.rows",
        "nodes.node",
        "nodes.resources",
        "nodes.allocatable",
        "nodes.requested",
        "nodes.unschedulable",
        "nodes.labels['zone'].ids",
        "nodes.labels['zone'].values",
        "nodes.labels['zone'].find",
        "pods.count",
    ),
}
"""Of these classes only some members are for users."""
ANSWERS = {"Decision", "Handle", "NodeInfo", "NodePods", "ObjectLister", "Recording", "WaitingPod"}
"""Classes that users get and never make."""


def examples() -> dict[str, object]:
    node, pod = make_node("n").label(zone="a").obj(), make_pod("p").req(cpu="1").obj()
    table: Table = table_of(node)
    info: PodInfo = pod_info(pod)
    rule = extender.predicate(lambda pod, node: True)
    (node_info,) = table.infos(table.nodes.rows)
    others = {"NodeInfo": node_info, "PodInfo": info, "PredicateFunction": rule, "Table": table}
    others |= {name: kind() for name, kind in READ_KINDS.items()}
    return {"Pod": info.pod, "Node": to_object(node, "a node"), **others}


def surface() -> Iterator[str]:
    """Yields a line for each name and member."""
    shown = examples()
    for name in sorted(extender.__all__):
        found = getattr(extender, name)
        if name in MEMBERS:
            for path in MEMBERS[name]:
                yield f"{name}.{path}{_shape(eval(f'example.{path}', {'example': shown[name]}))}"
        elif inspect.isclass(found) and not issubclass(found, Exception):
            yield name if name in ANSWERS else f"{name}{_signature(found)}"
            members = ((each, found.__dict__[each]) for each in vars(found) if not each.startswith("_"))
            for each, member in members:
                yield f"{name}.{each}{_signature(getattr(found, each)) if _is_method(member) else ''}"
        else:
            yield f"{name}{_signature(found) if inspect.isroutine(found) else ''}"


def _is_method(member: object) -> bool:
    return isinstance(member, FunctionType | classmethod)


def _signature(found: object) -> str:
    return str(inspect.signature(found)).replace("'", "")  # type: ignore[arg-type]  # a class or a function


def _shape(value: object) -> str:
    if inspect.isroutine(value):
        return _signature(value)
    return f": {value.dtype}[{', '.join('n' * value.ndim)}]" if isinstance(value, np.ndarray) else ""


def test_the_surface_is_what_the_document_says() -> None:
    """Changes on purpose are written down by `python -m tests.test_public_surface`."""
    written = BLOCK.search(DOCUMENT.read_text())
    assert written is not None
    assert written.group(1).splitlines() == list(surface())


if __name__ == "__main__":
    block = "\n".join(("```", *surface(), "```"))
    DOCUMENT.write_text(BLOCK.sub(lambda _: block, DOCUMENT.read_text(), count=1))
