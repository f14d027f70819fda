"""The command `extender explain`: why a pod waits or where it would go, all pods that wait, or many cases."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import click

from extender.cli.answers.sources import (
    DOES_NOT_FIT,
    FILE,
    OUTPUT,
    Progress,
    Source,
    known_key,
    pod_key,
    print_answer,
    say,
    show,
    source_options,
)
from extender.cli.status import answered
from extender.errors import ConfigurationError, ExtenderError, UnknownPod

if TYPE_CHECKING:  # NumPy takes longer to load than --help may take
    from extender.framework.profile import Profiles
    from extender.offline.explain.explanation import Explanation
    from extender.offline.manifests.templates import Workload
    from extender.offline.state import ClusterState

FAILURE = 1
_DECISIONS, _OK, _NOT_FOUND = "/debug/decisions", 200, 404


@click.command()
@click.argument("pod", metavar="[POD]", required=False)
@click.option(
    "-f", "--filename", type=FILE, metavar="FILE", help="pod, Deployment, Job ... to explain, perhaps .gz; -: stdin"
)
@source_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="list the pending pods of all namespaces (without a POD: the default)"
)
@click.option("--nodes", is_flag=True, help="show every node, with its scores or its reasons (as -o wide)")
@click.option("--node", metavar="NAME", help="show what every filter says of this one node")
@click.option(
    "--changes/--no-changes", default=True, show_default=True, help="look for the smallest change that would help"
)
@OUTPUT
@click.option(
    "--from", "server", metavar="URL", help="what a running `serve` or `schedule` has decided, not what would be now"
)
@click.option("--batch", is_flag=True, help="answer cases from standard input, one a line")
def explain(
    source: Source,
    pod: str | None,
    filename: Path | None,
    all_namespaces: bool,
    nodes: bool,
    node: str | None,
    changes: bool,
    output: str,
    server: str | None,
    batch: bool,
) -> None:
    """Tell why a pod waits, or where it would go, and what would let it run.

    \b
    All pods that wait in a live cluster, or in a file or folder (as `kubectl get nodes,pods -A -o yaml` or
    `kubectl cluster-info dump -A --output-directory DIR` write them), grouped by cause:
      extender explain
      extender explain --cluster cluster.yaml
    One of them; node by node; every filter's verdict on one node:
      extender explain shop/web-0 --cluster cluster.yaml
      extender explain pod/web-0 -n shop --nodes
      extender explain web-0 -n shop --node worker-3
    A pod that is not there yet, or the template of a Deployment, StatefulSet, DaemonSet, Job, CronJob ...:
      extender explain -f pod.yaml --cluster cluster.yaml -o json
    A page with a map of the nodes, in one file to attach to a ticket:
      extender explain shop/web-0 -o html > web-0.html
    What a running process has decided about it, and when; the last decision about each pod:
      extender explain shop/web-0 --from http://127.0.0.1:8888
      extender explain --from http://127.0.0.1:8889
    Many cases {"name": ..., "cluster": {"items": [...]}, "pod": {...}}, one a line; one answer a line:
      extender explain --batch < cases.jsonl > answers.jsonl

    A kind that may not be read is named in a note, with what that leaves uncertain.

    Exit status: 0 it fits (or: the list is complete), 3 it does not fit now, 2 wrong usage or input, 1 failure (or:
    nodes may not be read, and no scheduler has said anything of the pod).
    """
    if server is not None:
        if filename or nodes or node or batch or source.cluster or source.kubeconfig:
            raise ConfigurationError(["--from takes a POD or nothing: what was decided is not asked of a cluster"])
        _past(server, pod and pod_key(pod, source.namespace or "default"), output)
        return
    if batch:
        if pod or filename or source.cluster or source.kubeconfig:
            raise ConfigurationError(["--batch reads clusters and pods from standard input alone"])
        sys.exit(_answer_all(sys.stdin.buffer, source.profiles(), changes))
    if pod is not None and filename is not None:
        raise ConfigurationError(["give one pod: POD of the cluster, or -f FILE"])
    if pod is None and filename is None:
        if node or nodes:
            raise ConfigurationError(["give one pod with --node and --nodes: POD of the cluster, or -f FILE"])
        _list(source, "" if all_namespaces else source.namespace or "", output)
        return
    sys.exit(_explain(source, pod, filename, node, nodes or output == "wide", changes, output))


def _past(server: str, key: str | None, output: str) -> None:
    from extender.runtime.text import aligned

    path = f"{_DECISIONS}?{urlencode({'pod': key})}" if key else _DECISIONS
    status, body = answered(server, path, "--from", "`extender serve` or `schedule`")
    try:
        found = json.loads(body)
    except ValueError:
        found = {}
    if status == _NOT_FOUND and key and "no decision" in str(found.get("error")):
        raise UnknownPod(found["error"])
    if status != _OK:
        told = found.get("error") or "is it `extender serve` or `schedule`, with decisionsSeconds above 0?"
        raise ExtenderError(f"{server}{_DECISIONS} answers {status}: {told}")
    if output in ("json", "yaml"):
        show(found, output)
        return
    lines = [("TIME", "POD", "DECISION", "OUTCOME")]
    for each in found["decisions"] if key else found["pods"]:
        reasons = ", ".join(f"{nodes} {reason}" for reason, nodes in each.get("reasons", {}).items())
        victims = f"; to leave: {', '.join(each['victims'])}" if each.get("victims") else ""
        outcome = f"{each['outcome']}{f' ({reasons})' if reasons else ''}{victims}"
        time = datetime.fromtimestamp(each["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines.append((time, key or each["pod"], each["what"], outcome))
    say("\n".join(aligned(lines)))


def _list(source: Source, namespace: str, output: str) -> None:
    from extender.offline.explain.overview import as_text, pending_pods

    state, unread = source.load(namespace=namespace, needs_nodes=False)
    pods = pending_pods(state, namespace, Progress("pending pods"))
    document = {"pending": [each.to_dict() for each in pods]}
    print_answer(as_text(pods, datetime.now(UTC)), document, unread, output, "pending.html")


def _explain(
    source: Source,
    pod: str | None,
    filename: Path | None,
    node: str | None,
    nodes: bool,
    changes: bool,
    output: str,
) -> int:
    workloads = source.workloads([filename]) if filename else []
    key = pod_key(pod, source.default_namespace()) if pod else ""
    state, unread = source.load(namespace=key.partition("/")[0], needs_nodes=bool(node))
    explanations = []
    for number, explanation in enumerate(_explanations(state, key, workloads)):
        explanation.notes = [*explanation.notes, *unread]
        explanations.append(explanation)
        if output in ("json", "yaml", "html"):
            continue
        lines = list(_lines(explanation, node, nodes, changes))
        say("\n".join(["", *lines] if number else lines))
    if output in ("json", "yaml"):
        documents = [each.to_dict(changes=changes) for each in explanations]
        if node:
            for document, each in zip(documents, explanations, strict=True):
                document["filters"] = {it.plugin: list(it.reasons) for it in each.on_node(node)}
        show(documents[0] if len(documents) == 1 else documents, output)
    if output == "html":
        if len(explanations) > 1:
            raise ConfigurationError([f"-o html shows one pod, and these are {len(explanations)}"])
        say(explanations[0].to_html(changes=changes))
    return _status(explanations)


def _status(explanations: Sequence[Explanation]) -> int:
    if not all(each.is_known for each in explanations):
        return FAILURE
    return 0 if all(each.fits for each in explanations) else DOES_NOT_FIT


def _explanations(state: ClusterState, key: str, workloads: Sequence[Workload]) -> Iterable[Explanation]:
    from extender.offline.explain.explanation import Explanation, explain_workload

    if key:
        yield Explanation(state, state.info(known_key(state, key)).pod)
    for workload in workloads:
        yield explain_workload(state, workload)


def _lines(explanation: Explanation, node: str | None, nodes: bool, changes: bool) -> Iterable[str]:
    from extender.offline.explain import terminal

    if node:
        yield from terminal.summary(explanation, changes=False)
        yield from terminal.one_node(node, explanation.on_node(node))
        return
    yield from terminal.summary(explanation, changes=changes)
    if nodes:
        yield from terminal.nodes(explanation)


def _answer_all(lines: Iterable[bytes], profiles: Profiles | None, changes: bool) -> int:
    """Prints an answer for each line; the exit status: 1 if any of them has an error."""
    from extender.offline.batch import answers

    failed = False
    for answer in answers(lines, profiles, changes=changes):
        failed |= "error" in answer
        say(json.dumps(answer, separators=(",", ":")))
    return FAILURE if failed else 0
