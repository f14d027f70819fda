"""The option --add-node: new nodes, each like a node of the cluster or as a file describes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from extender.cli.completion import nodes
from extender.errors import ConfigurationError
from extender.runtime.text import whole_number

if TYPE_CHECKING:  # not imported at run time, because --help must not wait for NumPy
    from extender.offline.controllers.fresh_nodes import NodeTemplate
    from extender.offline.state import ClusterState

_OBJECT_FILES = (".json", ".yaml", ".yml", ".gz")

add_node_option = click.option(
    "--add-node",
    multiple=True,
    shell_complete=nodes,
    metavar="NODE|FILE[=N]",
    help="add N nodes like this one; a file has a Node, and may have its CSINode, ResourceSlices and"
    " CSIStorageCapacities",
)


def add_new_nodes(state: ClusterState, arguments: Sequence[str]) -> list[str]:
    """Adds the nodes that --add-node asks for; returns notes on what is not known about them."""
    from extender.offline.what_if.scenario import Scenario, apply
    from extender.offline.what_if.simulation import Simulation

    return apply(Scenario(add_nodes=list(map(node_template, arguments))), Simulation(state)) if arguments else []


def node_template(argument: str) -> tuple[NodeTemplate, int]:
    """Parses an argument of --add-node; returns what to copy, and how many nodes to add."""
    before, _, digits = argument.rpartition("=")
    number = whole_number(digits)
    name, count = (before, number) if before and number is not None else (argument, 1)
    path = Path(name)
    if path.suffix not in _OBJECT_FILES:  # a node's name may contain a dot, but no equals sign
        if not name or "=" in name:
            raise ConfigurationError([f"--add-node {argument}: expected NODE=N or FILE=N, such as worker-1=3"])
        if not path.is_file():
            return name, count
    from extender.model.node import Node
    from extender.model.workloads import Namespace
    from extender.snapshots.files import load

    objects = [obj for obj in load(path) if not isinstance(obj, Namespace)]  # `load` adds those of capacities
    number_of_nodes = sum(isinstance(obj, Node) for obj in objects)
    if number_of_nodes != 1:
        raise ConfigurationError([f"--add-node {name}: expected a file with one Node, got {number_of_nodes}"])
    return objects, count
