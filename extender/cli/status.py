"""The command `extender status`: the pods that a running `extender schedule` has not placed yet, by queue."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from extender.cli.document_kinds import DocumentKind, headed
from extender.cli.output import Output, in_order, list_options, output_option, say, show, switch
from extender.cli.running import (
    IN_CLUSTER_OPTION,
    TLS,
    AddressedReplica,
    RunningReplica,
    ServerTls,
    document_of,
    replicas_of,
    tls_options,
)
from extender.cli.source_options import ACCESS, access_options, pod_key, refuse_options
from extender.config.cluster_access import ClusterAccess
from extender.errors import ExtenderError
from extender.runtime.text import age, aligned, counted

if TYPE_CHECKING:
    from extender.cli.output import JsonPath
    from extender.model.selectors import Selector

SECTIONS = {
    "active": "will be tried next",
    "backoff": "was refused, and is tried again after its backoff",
    "unschedulable": "was refused, and waits for an event that may help",
    "gated": "is not tried yet: it has a scheduling gate, its victims are leaving, or its PodGroup is unknown",
    "inFlight": "is being scheduled",
    "assumed": "was placed on its node, but the API server has not confirmed it yet",
    "arriving": "was just received",
}
PATH = "/debug/pods"
_PORT = 8889
_WATCH_SECONDS = 1.0
FIELDS = {
    "NAMESPACE": "namespace",
    "NAME": "name",
    "TIER": "tier",
    "ATTEMPTS": "attempts",
    "SINCE": "sinceSeconds",
    "REFUSED BY": "refusedBy",
    "NODE": "node",
    "NOMINATED": "nominatedNode",
}
_WIDE = {**FIELDS, "PRIORITY": "priority", "SCHEDULER": "schedulerName", "UID": "uid"}
Pod = Mapping[str, Any]


@click.command(
    epilog="\b\nTiers:\n" + "\n".join(f"  {name:<14} {meaning}" for name, meaning in SECTIONS.items()),
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--server",
    metavar="URL",
    default="http://127.0.0.1:8889",
    show_default=True,
    help="address of the scheduler: its --bind",
)
@IN_CLUSTER_OPTION
@tls_options
@access_options
@click.option("-n", "--namespace", metavar="NAME", help="show only pods of this namespace")
@switch("-A", "--all-namespaces", help="show the pods of all namespaces (the default without -n)")
@click.option(
    "--tier", type=click.Choice(tuple(SECTIONS)), multiple=True, help="show only pods in this tier; repeatable"
)
@list_options
@switch("-w", "--watch", help="then keep showing pods as they are added or change, until Ctrl-C")
@output_option()
def status(
    names: tuple[str, ...],
    server: str,
    in_cluster: str | None,
    access: ClusterAccess,
    namespace: str | None,
    all_namespaces: bool,
    tier: tuple[str, ...],
    selector: Selector | None,
    sort_by: JsonPath | None,
    watch: bool,
    output: Output,
    tls: ServerTls,
) -> None:
    """Show the pods that a running `extender schedule` has not placed yet, and which plugins refused them.

    \b
    All these pods, only the refused ones, or one of them as YAML:
      extender status
      extender status --tier unschedulable -o wide
      extender status shop/web-0 -o yaml
    The pods of an application, longest waiting last, and then every change:
      extender status -l app=web --sort-by .sinceSeconds --watch
    For a scheduler in the cluster:
      extender status --in-cluster extender-system/extender

    SINCE is the time since a pod entered the queue or was last returned to it. REFUSED BY lists the plugins that
    refused the pod in its last attempt, or that keep it from being tried. NOMINATED is the node from which preemption
    evicts other pods for this pod.

    Exit status: 0, also if no pod is waiting; 1 if there is no answer; 2 for wrong usage.
    """
    if in_cluster is None:
        refuse_options(ACCESS, "these options need --in-cluster NAMESPACE/DEPLOYMENT")
    else:
        refuse_options(TLS, "these options need --server URL: --in-cluster goes through the API server")
        refuse_options(("server",), "give one scheduler: either --server or --in-cluster")
    keys = {pod_key(name, "") for name in names}
    chosen = None if all_namespaces else namespace

    def is_meant(pod: Pod) -> bool:
        return (
            chosen in (None, pod["namespace"])
            and (not keys or not keys.isdisjoint((f"/{pod['name']}", f"{pod['namespace']}/{pod['name']}")))
            and (not tier or pod["tier"] in tier)
            and (selector is None or selector.matches(pod.get("labels", {})))
        )

    addressed = AddressedReplica(server, "--server", "`extender schedule`", tls)
    replica, queue = _leader_of(replicas_of(in_cluster, access, _PORT, addressed))
    pods = in_order(filter(is_meant, pods_of(queue)), sort_by)
    if not queue["leading"]:
        click.echo("note: this replica is not the leader, so it schedules no pods", err=True)
    _print(pods, queue["scheduled"], output)
    has_heading = bool(pods)
    with suppress(KeyboardInterrupt):
        while watch:
            time.sleep(_WATCH_SECONDS)
            queue, before = queue_of(replica), {pod["uid"]: _without_age(pod) for pod in pods}
            pods = in_order(filter(is_meant, pods_of(queue)), sort_by)
            if changed := [pod for pod in pods if before.get(pod["uid"]) != _without_age(pod)]:
                _print(changed, queue["scheduled"], output, heading=not has_heading)
                has_heading = True


def _without_age(pod: Pod) -> Pod:
    return {key: value for key, value in pod.items() if key != "sinceSeconds"}


def _print(pods: Sequence[Pod], scheduled: int, output: Output, *, heading: bool = True) -> None:
    if not output.is_text:
        show(headed(DocumentKind.QUEUE, {"pods": pods, "scheduled": scheduled}), output)
    elif pods:
        text = table(pods, _WIDE if output.is_wide else FIELDS)
        say(text if heading else text.partition("\n")[2])
    else:
        click.echo(f"no such pods are waiting; {counted(scheduled, 'pod')} scheduled so far", err=True)


def _leader_of(replicas: Iterable[RunningReplica]) -> tuple[RunningReplica, Mapping[str, Any]]:
    """Returns the leading replica and its queue. If no replica leads, returns the last replica and its queue."""
    for replica in replicas:
        queue = queue_of(replica)
        if queue["leading"]:
            break
    return replica, queue


def queue_of(replica: RunningReplica) -> Mapping[str, Any]:
    """Requests the queue of a running scheduler; returns the pods in each tier.

    Raises the errors of `RunningReplica.get`, and ExtenderError if the process is not `extender schedule`.
    """
    status, queue = document_of(replica, PATH)
    if status != http.client.OK or not {*SECTIONS, "scheduled", "leading"} <= queue.keys():
        raise ExtenderError(
            f"{replica}{PATH} answers {status}, but not with a queue; expected the address of `extender schedule`, "
            "because `extender serve` has no queue"
        )
    return queue


def pods_of(queue: Mapping[str, Any]) -> list[Pod]:
    """Returns the pods of all tiers, sorted by tier and then by priority."""
    return [
        {"namespace": pod["namespace"], "name": pod["name"], "tier": section, **pod}
        for section in SECTIONS
        for pod in sorted(queue[section], key=lambda pod: (-pod["priority"], pod["namespace"], pod["name"]))
    ]


def table(pods: Iterable[Pod], fields: Mapping[str, str]) -> str:
    """Returns a table of the pods in kubectl's style, with these fields as columns."""
    lines = [[*fields], *([_shown(field, pod[field]) for field in fields.values()] for pod in pods)]
    return "\n".join(aligned(lines, "   "))


def _shown(field: str, value: Any) -> str:
    if field == "sinceSeconds" and value is not None:
        return age(value)
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value in (None, "") else str(value)
