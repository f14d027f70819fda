"""The command `extender plan`: the fewest evictions after which pods are placed, or the proof that none help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from extender.cli.completion import pods_and_groups
from extender.cli.document_kinds import DocumentKind
from extender.cli.output import Output, output_option, say, switch
from extender.cli.source_options import (
    DOES_NOT_FIT,
    FILE,
    Seconds,
    Source,
    group_key,
    known_pod,
    pod_key,
    print_answer,
    source_options,
)
from extender.errors import ConfigurationError

if TYPE_CHECKING:  # not imported at run time, because --help must not wait for NumPy
    from extender.offline.manifests.templates import Workload
    from extender.offline.state import ClusterState


@click.command()
@source_options
@click.argument("pods", metavar="[POD]...", nargs=-1, shell_complete=pods_and_groups)
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Pod, Deployment, Job ... to create after the moves, in a file or folder; -: standard input",
)
@click.option(
    "--max-moves",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="the most evictions of a plan",
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
    help="how long to search; then the best plan so far is printed",
)
@click.option("--seed", type=int, default=0, show_default=True, help="decides between nodes with the same score")
@switch("--script", help="print a shell script that carries the moves out with kubectl, for review")
@output_option()
def plan(
    source: Source,
    pods: Sequence[str],
    filenames: Sequence[Path],
    max_moves: int,
    keep: Sequence[str],
    no_evict_priority_above: int | None,
    evict_bare_pods: bool,
    seconds: float,
    seed: int,
    script: bool,
    output: Output,
) -> None:
    """Find the fewest evictions after which pods have a node, or prove that no evictions help.

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

    If not all pods can be placed, the plan places the most of the highest priority, then of the next, and so on. Most
    proofs that no plan is better need a solver: pip install 'podseat[plan]'.

    Exit status: 0 if there is a plan, or if no move is needed; 3 if not everything is placed; 2 for wrong usage or
    input; 1 for a failure.
    """
    from extender.offline.plan.plan import as_text
    from extender.offline.plan.plan import plan as find_plan

    if script and not output.is_text:
        raise ConfigurationError(["give one form of output: --script or -o"])
    workloads = source.workloads(filenames)
    state, unread = source.load()
    namespace = source.default_namespace() if pods else ""
    targets: list[str | Workload] = [key for each in pods for key in _keys(state, each, namespace)]
    if not (pods or workloads):
        targets = [*_all_waiting(state, source.namespace)]
    found = find_plan(
        state,
        [*targets, *workloads],
        keep,
        most_moves=max_moves,
        most_priority=no_evict_priority_above,
        bare_pods=evict_bare_pods,
        seconds=seconds,
        seed=seed,
    )
    if script:
        say(found.to_script().rstrip("\n"))
    else:
        print_answer(as_text(found, every=output.is_wide), DocumentKind.PLAN, found.to_dict(), unread, output, "")
    sys.exit(0 if found.succeeds else DOES_NOT_FIT)


def _all_waiting(state: ClusterState, namespace: str | None) -> list[str]:
    """Returns `namespace/name` of all pods that wait for a node, of one namespace if it is given."""
    from extender.offline.controllers.workloads import in_order

    waiting = [info.pod for info in in_order(state.pending) if not info.pod.terminating]
    if not (keys := [pod.key for pod in waiting if namespace in (None, pod.namespace)]):
        where = f" in namespace {namespace}" if namespace else ""
        raise ConfigurationError([f"no pod is pending{where}: give the pods to place with -f FILE"])
    return keys


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
