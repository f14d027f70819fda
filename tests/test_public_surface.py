"""`extender` exports exactly what docs/rules.md promises to users."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import extender
from extender.model.meta import Object
from extender.snapshots.objects import to_object
from extender.table import PodInfo, Table
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of

DOCUMENT = Path(__file__).parents[1] / "docs" / "rules.md"
OBJECT = ("name", "namespace", "uid", "key", "labels", "annotations", "controller", "metadata", "spec", "status")
BLOCK = re.compile(r"```\n(Balance\n.*?)```", re.DOTALL)
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
    "DeviceAsk": ("cpu", "memory", "milli", "count", "models", "is_shared", "total"),
    "DeviceNodes": ("models", "cpu", "memory", "devices", "free", "free_cpu", "free_memory", "pods"),
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
RESULTS = {
    *("Balance", "Capacity", "ChangedDecision", "Comparison", "Difference", "DomainOffer", "DrainEffect", "Eviction"),
    *(
        "Explanation",
        "FilterVerdict",
        "GroupExplanation",
        "Move",
        "MovePlan",
        "Moved",
        "NodeUsage",
        "PendingGroup",
        "PendingPod",
        "Placement",
    ),
    *("Reason", "RecordedStep", "ReplayResult", "ScoreLine", "SimulationResult", "SuggestedChange"),
    *("ChildGroup", "PendingGroup", "Waterfall"),
    *("ExperimentResult", "ExperimentSample", "PolicySummary"),
}
"""Classes of answers; each of their attributes is documented."""
ANSWERS = {"Decision", "Handle", "Listing", "NodeInfo", "NodePods", "ObjectLister", "Recording", "WaitingPod"} | RESULTS
"""Classes that users get and never make."""


def examples() -> dict[str, object]:
    node, pod = make_node("n").label(zone="a").obj(), make_pod("p").req(cpu="1").obj()
    table: Table = table_of(node)
    info: PodInfo = pod_info(pod)
    rule = extender.predicate(lambda pod, node: True)
    (node_info,) = table.infos(table.nodes.rows)
    others = {"NodeInfo": node_info, "PodInfo": info, "PredicateFunction": rule, "Table": table}
    one = np.ones(1, np.int64)
    others |= {
        "DeviceAsk": extender.DeviceAsk(),
        "DeviceNodes": extender.DeviceNodes.empty(one.astype(str), one, one, one),
    }
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
            members = _members(found)
            for each, member in members.items():
                yield f"{name}.{each}{_signature(getattr(found, each)) if _is_method(member) else ''}"
            if name in RESULTS or name == "Cluster":
                yield from (f"{name}.{each}" for each in documented(found) if each not in members)
        else:
            yield f"{name}{_signature(found) if inspect.isroutine(found) else ''}"


def _members(found: type) -> dict[str, Any]:
    """The public members of a class, and those of its bases in `extender`."""
    bases = [each for each in reversed(found.__mro__) if each.__module__.startswith("extender.")]
    return {name: member for each in bases for name, member in vars(each).items() if not name.startswith("_")}


def documented(found: type) -> list[str]:
    """The attributes that the docstrings of a class and of its bases describe."""
    names: list[str] = []
    for each in reversed(found.__mro__):
        text = inspect.cleandoc(each.__doc__ or "")  # Python 3.13 removes the indentation, earlier versions do not
        section = text.partition("Attributes:\n")[2].partition("\n\n")[0]
        lines = re.findall(r"^    (\w+(?:, \w+)*): ", section, re.MULTILINE)
        names += [name for line in lines for name in line.split(", ")]
    return names


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


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_every_attribute_of_a_result_is_documented(name: str) -> None:
    found = EXPORTED[name]
    fields = [each.name for each in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
    assert [each for each in (*fields, *getattr(found, "__struct_fields__", ())) if each not in documented(found)] == []
    members = [getattr(found, each) for each in vars(found) if not each.startswith("_")]
    assert [each for each in members if isinstance(each, property | FunctionType) and not each.__doc__] == []


def test_tab_completion_offers_the_public_names() -> None:
    assert set(dir(extender)) - {"__all__", "__doc__", "__name__"} == set(extender.__all__)


if __name__ == "__main__":
    block = "\n".join(("```", *surface(), "```"))
    DOCUMENT.write_text(BLOCK.sub(lambda _: block, DOCUMENT.read_text(), count=1))
