"""The commands `extender simulate`, `capacity`, `compare` and `plan`, which work on a copy of a cluster in memory.

`plan` finds the fewest evictions that place pods, empty nodes or make room, or proves that none do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from extender.cli.completion import nodes, pods_and_groups
from extender.cli.document_kinds import DocumentKind
from extender.cli.output import Output, add_options, output_option, say, switch
from extender.cli.source_options import (
    DOES_NOT_FIT,
    SEED_OPTION,
    Progress,
    Seconds,
    Source,
    add_new_nodes,
    add_node_option,
    filenames_option,
    group_key,
    known_pod,
    node_template,
    number_option,
    pod_key,
    print_answer,
    profiles_of,
    show_progress,
    source_options,
)
from extender.errors import ConfigurationError
from extender.runtime.text import whole_number

if TYPE_CHECKING:  # not imported at run time, because --help must not wait for NumPy
    from extender.offline.manifests.templates import Workload
    from extender.offline.state import ClusterState
    from extender.offline.what_if.scenario import Scenario

_FILENAMES = filenames_option("to place")


def _nodes_option(name: str, text: str) -> Any:
    return click.option(name, multiple=True, shell_complete=nodes, metavar="NODE|KEY=VALUE", help=text)


def _scenario_options(command: Any) -> Any:
    options = (
        _FILENAMES,
        number_option("--replicas", "number of pods for each -f  [default: its own replicas]", least=0),
        _nodes_option("--cordon", "place no new pods on this node, or these nodes"),
        _nodes_option("--drain", "cordon, and evict pods as PodDisruptionBudgets allow"),
        add_node_option,
        _nodes_option("--remove-node", "remove this node, or these nodes"),
        click.option(
            "--scale", multiple=True, metavar="[NS/]KIND/NAME=N", help="scale deploy/x, sts/x, rs/x or job/x to N pods"
        ),
        click.option(
            "--delete", multiple=True, metavar="[NS/][KIND/]NAME", help="delete this pod, or the pods of this workload"
        ),
    )
    return add_options(command, options)


@click.command()
@source_options
@_scenario_options
@SEED_OPTION
@output_option(page=True)
def simulate(source: Source, seed: int, output: Output, **changes: Any) -> None:
    """Simulate where pods would be placed, also after nodes are drained or added, or workloads scaled or created.

    All pending pods, and those that the changes add or evict, go through the scheduler's own queue, scheduling cycle
    and preemption until nothing changes. Controllers recreate evicted pods, so those are scheduled again.

    \b
    Where the pods that are pending now would be placed:
      extender simulate --cluster cluster.yaml
    Fifty replicas of an application, with three more nodes:
      extender simulate -f app.yaml --replicas 50 --add-node worker-1=3
    Where the pods of a node, or of all nodes with a label, could move:
      extender simulate --drain worker-1
      extender simulate --drain pool=old -o json
    A Deployment scaled to 20 replicas, under another policy:
      extender simulate -n shop --scale deploy/web=20 --policy policy.yaml

    Exit status: 0 if every pod has a node; 3 if a pod is pending or lost, with --drain if the drain causes it, or if a
    pod stays on a drained node; 2 for wrong usage or input; 1 for a failure.
    """
    from extender.offline.what_if.result import as_text
    from extender.offline.what_if.result import simulate as run

    state, unread = source.load()
    result = run(state, _scenario(source, **changes), seed, progress=Progress("pods placed"))
    lines = as_text(result, every=output.is_wide)
    document = result.to_dict()
    print_answer(lines, DocumentKind.SIMULATION, document, unread, output, "simulation.html", maps=result.maps())
    sys.exit(0 if result.succeeds else DOES_NOT_FIT)


@click.command()
@source_options
@click.argument("targets", metavar="[[NS/][KIND/]NAME]...", nargs=-1)
@_FILENAMES
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="pods of a template placed in each round; give one N for each template, KIND/NAME before -f  [default: 1]",
)
@add_node_option
@number_option("--most", "stop after this many pods  [default: 100000]")
@output_option(page=True)
def capacity(
    source: Source,
    targets: Sequence[str],
    filenames: Sequence[Path],
    weights: Sequence[int],
    add_node: Sequence[str],
    most: int | None,
    output: Output,
) -> None:
    """Count how many more pods of a template fit, on which nodes and zones, and show what runs out first.

    A template is a file, a workload of the cluster (deploy/x, sts/x, rs/x or job/x), or one of its pods.

    \b
    Count for one template; for a workload; for two templates, with three pods of the first per pod of the second:
      extender capacity -f pod.yaml --cluster cluster.yaml
      extender capacity -n shop deploy/web
      extender capacity -f web.yaml -f cache.yaml --weight 3 --weight 1
    Count as if three more nodes had joined, each with the devices that gpu-node.yaml describes:
      extender capacity -f train.yaml --add-node gpu-node.yaml=3

    Pods that are pending already are ignored, and no pod is preempted.

    Exit status: 0 if there is an answer, 2 for wrong usage or input, 1 for a failure.
    """
    from extender.offline.what_if.capacity import MOST_PODS, as_text
    from extender.offline.what_if.capacity import capacity as count_pods

    namespace = source.default_namespace() if targets else ""
    templates: list[Workload | str] = [*(target(each, namespace) for each in targets), *source.workloads(filenames)]
    if not templates:
        raise ConfigurationError(["give a template with -f FILE, or a workload such as deploy/web"])
    if weights and len(weights) != len(templates):
        raise ConfigurationError([f"expected one --weight for each template, got {len(weights)} for {len(templates)}"])
    state, unread = source.load()
    unread += add_new_nodes(state, add_node)
    result = count_pods(state, templates, weights, most or MOST_PODS, Progress("pods placed"))
    lines = as_text(result, every=output.is_wide)
    print_answer(lines, DocumentKind.CAPACITY, result.to_dict(), unread, output, "capacity.html")


@click.command()
@partial(source_options, compares=True)
@_scenario_options
@number_option("--max-pending", "exit with 3 if more pods are pending or lost under the second policy", least=0)
@number_option("--max-moved", "exit with 3 if the outcome differs for more than N pods", least=0)
@SEED_OPTION
@output_option(page=True)
def compare(
    source: Source,
    policies: tuple[Path, ...],
    max_pending: int | None,
    max_moved: int | None,
    seed: int,
    output: Output,
    **changes: Any,
) -> None:
    """Compare two policies: which pods end up elsewhere, stay pending or are lost, and how balanced the cluster is.

    The same pods are placed under the first --policy and then under the second, both times with the same --seed. A
    single --policy is compared with kube-scheduler's defaults.

    \b
    A change of the policy, checked before it is rolled out:
      extender compare --policy now.yaml --policy next.yaml --cluster cluster.json.gz -f app.yaml --replicas 100
    In CI, where no pod may be pending or lost:
      extender compare --policy now.yaml --policy next.yaml --cluster cluster.json.gz --max-pending 0

    Exit status: 0 if the result is within the limits, 3 if it is not, 2 for wrong usage or input, 1 for a failure.
    """
    from extender.framework.profile import Profiles
    from extender.offline.what_if.comparison import as_text
    from extender.offline.what_if.comparison import compare as run
    from extender.plugins.registry import default_profile

    first, second = _both(policies)
    state, unread = replace(source, policy=first).load()
    other_profiles = profiles_of(second, version=source.kubernetes_version) or Profiles([default_profile()])
    result = run(state, state.profiles, other_profiles, _scenario(source, **changes), seed, Progress("pods placed"))
    names = (first.name if first else "defaults", second.name)
    lines = as_text(result, names, every=output.is_wide)
    print_answer(
        lines,
        DocumentKind.COMPARISON,
        result.to_dict(),
        unread,
        output,
        "comparison.html",
        names=names,
        choices=(),
        maps=result.maps(names),
    )
    exceeded = [
        f"{what}: {count}, the limit is {limit}"
        for what, count, limit in (
            ("too many pods pending or lost", len(result.second.remaining) + len(result.second.lost), max_pending),
            ("too many pods with another outcome", len(result.moved), max_moved),
        )
        if limit is not None and count > limit
    ]
    for message in exceeded:
        click.echo(message, err=True)
    sys.exit(DOES_NOT_FIT if exceeded else 0)


def _both(policies: tuple[Path, ...]) -> tuple[Path | None, Path]:
    """Returns the files of the two policies to compare. None means kube-scheduler's defaults."""
    if not 1 <= len(policies) <= 2:
        raise ConfigurationError([f"expected one or two policies (--policy FILE --policy FILE), got {len(policies)}"])
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
        raise ConfigurationError(
            ["--replicas needs -f FILE; to scale a workload of the cluster, use --scale KIND/NAME=N"]
        )
    namespace = source.default_namespace()
    return Scenario(
        cordon=cordon,
        drain=drain,
        add_nodes=[node_template(argument) for argument in add_node],
        remove_nodes=remove_node,
        scale=[scaled(argument, namespace) for argument in scale],
        delete=[target(argument, namespace) for argument in delete],
        create=[(workload, replicas) for workload in source.workloads(filenames)],
    )


def scaled(argument: str, namespace: str) -> tuple[str, int]:
    """Parses an argument of --scale; returns NAMESPACE/KIND/NAME of the workload, and its number of pods."""
    name, _, digits = argument.rpartition("=")
    count = whole_number(digits)
    if count is None or not all(name.partition("/")):
        raise ConfigurationError([f"--scale {argument}: expected [NAMESPACE/]KIND/NAME=N, such as deploy/web=20"])
    return target(name, namespace), count


def target(argument: str, namespace: str) -> str:
    """Returns NAMESPACE/NAME for an argument like pod/web-0 or web-0, and NAMESPACE/KIND/NAME for one like deploy/web.

    An argument that begins with a namespace is returned unchanged.
    """
    from extender.offline.workloads import is_workload

    first = argument.partition("/")[0].lower()
    if first in ("pod", "po", "pods"):
        return f"{namespace}/{argument.partition('/')[2]}"
    return f"{namespace}/{argument}" if "/" not in argument or is_workload(first) else argument


_MANIFESTS = (".yaml", ".yml", ".json", ".gz")


@click.command()
@source_options
@click.argument("pods", metavar="[POD]...", nargs=-1, shell_complete=pods_and_groups)
@filenames_option("to create after the moves")
@click.option(
    "--defrag",
    metavar="SHAPE",
    help="make room for the most of this: FILE, KIND/NAME, podgroup/NAME, or '8x nvidia.com/gpu on one node'",
)
@click.option(
    "--empty",
    "emptied",
    multiple=True,
    shell_complete=nodes,
    metavar="NODE[,NODE...]|KEY=VALUE",
    help="move all pods away from these nodes, except those of DaemonSets and static ones; repeatable",
)
@number_option(
    "--count", "empty so many nodes, those with the fewest moves, of --empty or of all outside the control plane"
)
@number_option(
    "--max-moves", "the most evictions of a plan  [default: 20, or no limit for --empty and --count]", least=0
)
@click.option(
    "--keep",
    multiple=True,
    metavar="NAMESPACE|SELECTOR",
    help="evict no pods of this namespace, or with these labels, such as app=db,tier!=web; repeatable",
)
@click.option(
    "--no-evict-priority-above", type=int, metavar="PRIORITY", help="evict no pods of a higher priority than this"
)
@switch("--evict-bare-pods", help="also evict pods without a controller, which you then have to create again")
@click.option(
    "--search",
    "seconds",
    type=Seconds(min=0),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="how long to search, if --timeout allows it; then the best plan so far is printed",
)
@SEED_OPTION
@switch("--script", help="print a shell script that carries the moves out with kubectl, for review")
@output_option(page=True)
def plan(
    source: Source,
    pods: Sequence[str],
    filenames: Sequence[Path],
    defrag: str | None,
    emptied: Sequence[str],
    count: int | None,
    max_moves: int | None,
    keep: Sequence[str],
    no_evict_priority_above: int | None,
    evict_bare_pods: bool,
    seconds: float,
    seed: int,
    script: bool,
    output: Output,
) -> None:
    """Find the fewest evictions that place pods, empty nodes or make room, or prove that none do.

    Every move is decided by the scheduler's own rules, in the order given, so the plan says where each evicted pod
    goes. The command only prints, and evicts nothing. Budgets, DaemonSets, static pods, local volumes, the annotations
    of the cluster autoscaler and of Karpenter, and a missing controller keep pods where they are.

    \b
    Which moves make room for all pending pods, for one, for the waiting members of a group, or for new pods:
      extender plan
      extender plan shop/web-7
      extender plan podgroup/train -n ml
      extender plan -f big.yaml --cluster cluster.yaml
    No more than three moves, none in a namespace or of some pods, and none of important pods:
      extender plan shop/web-7 --max-moves 3 --keep kube-system --keep app=db --no-evict-priority-above 1000
    The same as a script, to review and then to run:
      extender plan shop/web-7 --script > moves.sh
    The moves that make room for the most pods with 8 GPUs, pods of a manifest, or whole groups:
      extender plan --defrag '8x nvidia.com/gpu on one node' --max-moves 3
      extender plan --defrag train.yaml
      extender plan --defrag podgroup/train -n ml
    The moves that empty two nodes for an upgrade, or the three nodes of a pool that need the fewest moves:
      extender plan --empty worker-1,worker-2
      extender plan --empty pool=old --count 3

    If not all pods can be placed, the plan places the most of the highest priority, then of the next, and so on. Most
    proofs that no plan is better need a solver: pip install 'podseat[plan]'.

    Exit status: 0 if there is a plan, or if no move is needed; 3 if not everything is placed; 2 for wrong usage or
    input; 1 for a failure.
    """
    from extender.offline.plan.plan import as_text, side_effects, summary
    from extender.offline.plan.plan import plan as find_plan

    if script and not output.is_text:
        raise ConfigurationError(["give one form of output: --script or -o"])
    workloads = source.workloads(filenames)
    shape = _shape(source, defrag) if defrag is not None else None
    state, unread = source.load()
    namespace = source.default_namespace() if pods else ""
    targets: list[str | Workload] = [key for each in pods for key in _keys(state, each, namespace)]
    if not (pods or workloads or defrag or emptied or count):
        targets = [*_all_waiting(state, source.namespace)]
    found = find_plan(
        state,
        [*targets, *workloads],
        keep,
        room_for=shape,
        empty_nodes=[name for each in emptied for name in each.split(",") if name],
        empty_count=count,
        most_moves=max_moves,
        most_priority=no_evict_priority_above,
        bare_pods=evict_bare_pods,
        seconds=seconds,
        seed=seed,
        progress=show_progress if sys.stderr.isatty() else None,
    )
    if sys.stderr.isatty():
        show_progress("")
    if script:
        say(found.to_script(_kubectl_flags(source)).rstrip("\n"))
    else:
        lines = as_text(found, every=output.is_wide)
        words = {"summary": summary(found), "side": side_effects(found)}
        print_answer(lines, DocumentKind.PLAN, found.to_dict(), unread, output, "plan.html", **words)
    sys.exit(0 if found.succeeds else DOES_NOT_FIT)


def _kubectl_flags(source: Source) -> list[str]:
    """Returns the flags with which kubectl talks to the cluster that the options name."""
    flags = [f"--kubeconfig={path}" for path in source.access.kubeconfigs]
    return flags if source.access.context is None else [*flags, f"--context={source.access.context}"]


def _all_waiting(state: ClusterState, namespace: str | None) -> list[str]:
    """Returns `namespace/name` of all pods that wait for a node, of one namespace if it is given."""
    from extender.offline.workloads import in_order

    waiting = [info.pod for info in in_order(state.pending) if not info.pod.terminating]
    if not (keys := [pod.key for pod in waiting if namespace in (None, pod.namespace)]):
        where = f" in namespace {namespace}" if namespace else ""
        raise ConfigurationError([f"no pod is pending{where}: give the pods to place with -f FILE"])
    return keys


def _shape(source: Source, argument: str) -> Workload | str:
    """Returns the manifest in the file that the argument names; else the shape as `goals.shape_of` takes it."""
    from extender.offline.plan.goals import amounts

    path = Path(argument)
    if argument == "-" or path.suffix in _MANIFESTS or path.exists():
        workloads = source.workloads([path])
        if len(workloads) > 1:
            raise ConfigurationError([f"--defrag {argument}: expected one pod or template, got {len(workloads)}"])
        return workloads[0]
    if amounts(argument) is not None:
        return argument
    if " " in argument:
        expected = "FILE, KIND/NAME, podgroup/NAME, or amounts such as '8x nvidia.com/gpu on one node'"
        raise ConfigurationError([f"--defrag {argument}: expected {expected}"])
    namespace = source.default_namespace()
    group = group_key(argument, namespace)
    if group is None:
        return target(argument, namespace)
    kind, key = group
    if kind != "PodGroup":
        raise ConfigurationError([f"--defrag {argument}: expected podgroup/NAME, but it names a {kind}"])
    return key.replace("/", "/podgroup/")


def _keys(state: ClusterState, argument: str, namespace: str) -> list[str]:
    """Returns `namespace/name` of the pod that the argument names, or of all waiting members of the PodGroup."""
    group = group_key(argument, namespace)
    if group is None:
        return [known_pod(state, pod_key(argument, namespace)).key]
    kind, key = group
    members = sorted(info.pod.key for info in state.pending if info.pod.group_key == key)
    if kind != "PodGroup" or not members:
        raise ConfigurationError([f"{argument}: expected a PodGroup with members that wait for a node"])
    return members
