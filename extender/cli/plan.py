"""The command `extender plan`: the fewest evictions that place pods, empty nodes or make room, or that none do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from extender.cli.completion import nodes, pods_and_groups
from extender.cli.document_kinds import DocumentKind
from extender.cli.output import Output, output_option, say, switch
from extender.cli.source_options import (
    DOES_NOT_FIT,
    SEED_OPTION,
    Seconds,
    Source,
    filenames_option,
    group_key,
    known_pod,
    pod_key,
    print_answer,
    show_progress,
    source_options,
)
from extender.cli.what_if import target
from extender.errors import ConfigurationError

if TYPE_CHECKING:  # not imported at run time, because --help must not wait for NumPy
    from extender.offline.manifests.templates import Workload
    from extender.offline.state import ClusterState

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
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="empty so many nodes, those with the fewest moves, of --empty or of all outside the control plane",
)
@click.option(
    "--max-moves",
    type=click.IntRange(min=0),
    metavar="N",
    help="the most evictions of a plan  [default: 20, or no limit for --empty and --count]",
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
    """Returns the manifest in the file that the argument names; else the shape as `defrag.shape_of` takes it."""
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
