"""The commands `extender simulate`, `capacity` and `compare`: nothing is ever written to a cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from extender.cli.answers.sources import (
    DOES_NOT_FIT,
    FILE,
    OUTPUT,
    Progress,
    Source,
    print_answer,
    profiles_of,
    source_options,
)
from extender.errors import ConfigurationError

if TYPE_CHECKING:  # NumPy takes longer to load than --help may take
    from extender.model.node import Node
    from extender.offline.what_if.scenario import Scenario

_FILENAMES = click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Pod, Deployment, Job ... to place; -: stdin",
)
_SEED = click.option("--seed", type=int, default=0, show_default=True, help="chooses between nodes of the same score")


def _scenario_options(command: Any) -> Any:
    options = (
        _FILENAMES,
        click.option(
            "--replicas", type=click.IntRange(min=0), metavar="N", help="pods of each -f  [default: as it says]"
        ),
        click.option("--cordon", multiple=True, metavar="NODE|KEY=VALUE", help="no new pods on these nodes"),
        click.option("--drain", multiple=True, metavar="NODE|KEY=VALUE", help="evict their pods, as budgets allow"),
        click.option("--add-node", multiple=True, metavar="NODE|FILE[=N]", help="N new nodes like this one"),
        click.option("--remove-node", multiple=True, metavar="NODE|KEY=VALUE", help="these nodes are gone"),
        click.option(
            "--scale", multiple=True, metavar="[NS/]KIND/NAME=N", help="N pods of deploy/x, sts/x, rs/x, job/x"
        ),
        click.option(
            "--delete", multiple=True, metavar="[NS/][KIND/]NAME", help="this pod, or the pods of this workload"
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@source_options
@_scenario_options
@_SEED
@OUTPUT
def simulate(source: Source, seed: int, output: str, **changes: Any) -> None:
    """Tell where pods would go if: nodes are drained or added, workloads scaled or made.

    Whatever waits in the cluster, and whatever the changes make wait, goes through the scheduler's own queue, cycle and
    preemption, until nothing moves. Evicted pods wait again, as their controllers make them anew.

    \b
    What would become of the pods that wait now:
      extender simulate --cluster cluster.yaml
    Fifty replicas of an application, on three nodes more:
      extender simulate -f app.yaml --replicas 50 --add-node worker-1=3
    New homes for the pods of a node, or of all nodes of a pool:
      extender simulate --drain worker-1
      extender simulate --drain pool=old -o json
    A Deployment scaled, by rules of another policy:
      extender simulate -n shop --scale deploy/web=20 --policy policy.yaml

    Exit status: 0 every pod has a node, 3 something is left over, stays on a drained node or is lost, 2 wrong usage or
    input, 1 failure.
    """
    from extender.offline.what_if.result import as_text
    from extender.offline.what_if.result import simulate as run

    state, unread = source.load()
    result = run(state, _scenario(source, **changes), seed, progress=Progress("pods placed"))
    print_answer(
        as_text(result, every=output == "wide"), result.to_dict(), unread, output, "simulation.html", maps=result.maps()
    )
    sys.exit(0 if result.complete and not result.kept else DOES_NOT_FIT)


@click.command()
@source_options
@_FILENAMES
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="pods of each -f in a round  [default: 1 each]",
)
@click.option(
    "--most", type=click.IntRange(min=1), metavar="N", help="look for no more pods than these  [default: 100000]"
)
@OUTPUT
def capacity(source: Source, filenames: Sequence[Path], weights: Sequence[int], most: int | None, output: str) -> None:
    """Tell how many more pods of a template fit, on which nodes and zones, and what runs out first.

    \b
    Of one template; of two, of which one has three pods for each of the other:
      extender capacity -f pod.yaml --cluster cluster.yaml
      extender capacity -f web.yaml -f cache.yaml --weight 3 --weight 1

    Pods that wait already are left aside, and nobody is preempted.

    Exit status: 0 answered, 2 wrong usage or input, 1 failure.
    """
    from extender.offline.what_if.capacity import MOST_PODS, as_text
    from extender.offline.what_if.capacity import capacity as count_pods

    workloads = source.workloads(filenames)
    if not workloads:
        raise ConfigurationError(["give a template with -f FILE"])
    if weights and len(weights) != len(workloads):
        raise ConfigurationError([f"give as many --weight as templates: {len(workloads)}, not {len(weights)}"])
    state, unread = source.load()
    found = count_pods(state, workloads, weights, most or MOST_PODS, Progress("pods placed"))
    print_answer(as_text(found, every=output == "wide"), found.to_dict(), unread, output, "capacity.html")


@click.command()
@partial(source_options, compares=True)
@_scenario_options
@click.option(
    "--max-pending", type=click.IntRange(min=0), metavar="N", help="fail where more stay pending under the second"
)
@click.option("--max-moved", type=click.IntRange(min=0), metavar="N", help="fail where more pods end elsewhere")
@_SEED
@OUTPUT
def compare(
    source: Source,
    policies: tuple[Path, ...],
    max_pending: int | None,
    max_moved: int | None,
    seed: int,
    output: str,
    **changes: Any,
) -> None:
    """Tell what differs under another policy: who moves, who stays pending, how even the cluster is.

    The same pods are placed under the first --policy and under the second, with one seed; a single one is compared with
    kube-scheduler's defaults.

    \b
    A change of the policy, checked before it is rolled out:
      extender compare --policy now.yaml --policy next.yaml --cluster cluster.json.gz -f app.yaml --replicas 100
    In CI, where nothing may stay pending that runs today:
      extender compare --policy now.yaml --policy next.yaml --cluster cluster.json.gz --max-pending 0

    Exit status: 0 compared, and within the limits; 3 beyond a limit, 2 wrong usage or input, 1 failure.
    """
    from extender.framework.profile import Profiles
    from extender.offline.what_if.comparison import as_text
    from extender.offline.what_if.comparison import compare as run
    from extender.plugins.registry import default_profile

    first, second = _both(policies)
    state, unread = replace(source, policy=first).load()
    other_profiles = profiles_of(second) or Profiles([default_profile()])
    found = run(state, state.profiles, other_profiles, _scenario(source, **changes), seed, Progress("pods placed"))
    names = (first.name if first else "defaults", second.name)
    lines = as_text(found, names, every=output == "wide")
    print_answer(
        lines, found.to_dict(), unread, output, "comparison.html", names=names, choices=(), maps=found.maps(names)
    )
    beyond = [
        f"{what}: {count}, the limit is {limit}"
        for what, count, limit in (
            ("left over", len(found.second.remaining), max_pending),
            ("moved", len(found.moved), max_moved),
        )
        if limit is not None and count > limit
    ]
    for fault in beyond:
        click.echo(fault, err=True)
    sys.exit(DOES_NOT_FIT if beyond else 0)


def _both(policies: tuple[Path, ...]) -> tuple[Path | None, Path]:
    """Returns the two policies to compare; None means kube-scheduler's defaults."""
    if not 1 <= len(policies) <= 2:
        raise ConfigurationError([f"give two policies to compare, --policy FILE --policy FILE, not {len(policies)}"])
    return (policies[0] if len(policies) == 2 else None), policies[-1]


def _scenario(
    source: Source,
    filenames: Sequence[Path],
    replicas: int | None,
    cordon: Sequence[str],
    drain: Sequence[str],
    add_node: Sequence[str],
    remove_node: Sequence[str],
    scale: Sequence[str],
    delete: Sequence[str],
) -> Scenario:
    from extender.offline.what_if.scenario import Scenario

    if replicas is not None and not filenames:
        raise ConfigurationError(["--replicas says how many pods of each -f: give -f, or --scale KIND/NAME=N"])
    namespace = source.default_namespace()
    return Scenario(
        cordon=cordon,
        drain=drain,
        add_nodes=[_node(each) for each in add_node],
        remove_nodes=remove_node,
        scale=[_scaled(each, namespace) for each in scale],
        delete=[_target(each, namespace) for each in delete],
        create=[(workload, replicas) for workload in source.workloads(filenames)],
    )


def _scaled(given: str, namespace: str) -> tuple[str, int]:
    form = re.fullmatch(r"(.+/.+)=(\d+)", given)
    if form is None:
        raise ConfigurationError([f"--scale {given}: want [NAMESPACE/]KIND/NAME=N, as deploy/web=20"])
    return _target(form[1], namespace), int(form[2])


def _target(given: str, namespace: str) -> str:
    """NAMESPACE/NAME or NAMESPACE/KIND/NAME."""
    from extender.offline.what_if.scenario import KINDS

    first = given.partition("/")[0].lower()
    if first in ("pod", "po", "pods"):
        return f"{namespace}/{given.partition('/')[2]}"
    return f"{namespace}/{given}" if "/" not in given or first in KINDS else given


def _node(given: str) -> tuple[str | Node, int]:
    """A node of the cluster or of a file, and how many like it."""
    name, counted, count = given.rpartition("=")
    if not counted or not count.isdigit():
        name, count = given, "1"
    path = Path(name)
    if not path.suffix and not path.is_file():
        if counted and name == given:
            raise ConfigurationError([f"--add-node {given}: want NODE=N or FILE=N, as worker-1=3"])
        return name, int(count)
    from extender.model.node import Node
    from extender.offline.manifests.files import load

    nodes = [obj for obj in load(path) if isinstance(obj, Node)]
    if len(nodes) != 1:
        raise ConfigurationError([f"--add-node {name}: want a file with one Node, not {len(nodes)}"])
    return nodes[0], int(count)
