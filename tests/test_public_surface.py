"""Users import from `extender` what docs/rules.md says; what they imported yesterday works, with a warning."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import extender
from extender.offline.manifests.objects import to_object
from extender.table import PodInfo, Table
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of

DOCUMENT = Path(__file__).parents[1] / "docs" / "rules.md"
OBJECT = ("name", "namespace", "uid", "key", "labels", "annotations", "metadata", "spec", "status")
BLOCK = re.compile(r"```\n(CPU\n.*?)```", re.DOTALL)
MEMBERS = {
    "Pod": (*OBJECT, "node_name", "priority", "containers", "init_containers", "terminating", "finished"),
    "Node": (*OBJECT, "taints", "allocatable"),
    "PodInfo": ("pod", "priority", "requests", "images", "host_ports"),
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
    ),
}
"""Of these classes only some members are for users."""
ANSWERS = {"Decision", "Handle", "Recording", "WaitingPod"}
"""Classes that users get and never make."""


def examples() -> dict[str, object]:
    node, pod = make_node("n").label(zone="a").obj(), make_pod("p").req(cpu="1").obj()
    table: Table = table_of(node)
    info: PodInfo = pod_info(pod)
    rule = extender.predicate(lambda pod, node: True)
    others = {"PodInfo": info, "PredicateFunction": rule, "Table": table}
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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("extender.table.nodes.CPU", "extender.CPU", id="the README's column rule"),
        pytest.param("extender.engine.custom.predicate", "extender.predicate", id="the decorator"),
        pytest.param(
            "extender.engine.status.unschedulable", "extender.framework.status.unschedulable", id="a submodule"
        ),
        pytest.param("extender.simulator.cluster.Cluster", "extender.Cluster", id="the simulator"),
        pytest.param(
            "extender.model.storage.StorageClass", "extender.model.volumes.storage.StorageClass", id="a model"
        ),
    ],
)
def test_yesterdays_paths_work_and_warn(old: str, new: str) -> None:
    """In a process of its own: what is imported once stays imported."""
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        f"    from {old.rpartition('.')[0]} import {old.rpartition('.')[2]} as yesterday\n"
        f"from {new.rpartition('.')[0]} import {new.rpartition('.')[2]} as today\n"
        "assert yesterday is today\n"
        "assert told and {each.category for each in told} == {DeprecationWarning}, told\n"
        "assert all(each.filename == '<string>' for each in told), told\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(ModuleNotFoundError):
        __import__("extender.engine.nothing")


if __name__ == "__main__":
    block = "\n".join(("```", *surface(), "```"))
    DOCUMENT.write_text(BLOCK.sub(lambda _: block, DOCUMENT.read_text(), count=1))
