"""The command `extender explain`: why pods are pending, or where they would be placed."""

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
    Progress,
    Source,
    group_key,
    known_key,
    pod_key,
    print_answer,
    source_options,
)
from extender.cli.completion import nodes as nodes_named
from extender.cli.completion import pods_and_groups
from extender.cli.output.formats import Output, output_option, say, show, switch
from extender.cli.output.listing import in_order, list_options
from extender.cli.running import IN_CLUSTER_OPTION, AddressedReplica, RunningReplica, replicas_in
from extender.errors import ConfigurationError, ExtenderError, UnknownPod
from extender.offline.documents.kinds import DocumentKind, headed, one_or_list

if TYPE_CHECKING:  # not imported at run time, because --help must not wait for NumPy
    from extender.cli.output.jsonpath import JsonPath
    from extender.framework.profile import Profiles
    from extender.model.selectors import Selector
    from extender.offline.explain.explanation import Explanation
    from extender.offline.manifests.templates import Workload
    from extender.offline.state import ClusterState

FAILURE = 1
_DECISIONS = "/debug/decisions"
_OK = 200
_NOT_FOUND = 404
_PORT = 8888
_NO_DECISIONS = b'{"pods":[]}'


@click.command()
@click.argument("pod", metavar="[POD]", required=False, shell_complete=pods_and_groups)
@click.option(
    "-f", "--filename", type=FILE, metavar="FILE", help="Pod, Deployment, Job ... to explain; -: standard input"
)
@source_options
@switch("-A", "--all-namespaces", help="list the pending pods of all namespaces (the default without -n)")
@list_options
@switch("--nodes", help="show every node with its scores or its reasons (as -o wide does)")
@click.option(
    "--node", metavar="NAME", shell_complete=nodes_named, help="show the verdict of every filter on this node"
)
@switch("--changes", default=True, help="search for the smallest change that would let the pod run")
@output_option(page=True)
@click.option(
    "--from", "server", metavar="URL", help="show what a running `serve` or `schedule` decided, instead of deciding"
)
@IN_CLUSTER_OPTION
@switch("--batch", help="read cases from standard input, one per line")
def explain(
    source: Source,
    pod: str | None,
    filename: Path | None,
    all_namespaces: bool,
    selector: Selector | None,
    sort_by: JsonPath | None,
    nodes: bool,
    node: str | None,
    changes: bool,
    output: Output,
    server: str | None,
    in_cluster: str | None,
    batch: bool,
) -> None:
    """Explain why a pod is pending, or where it would be placed, and what would let it run.

    \b
    All pending pods, grouped by cause, of a live cluster or of a file or directory (as `kubectl get nodes,pods -A -o
    yaml` or `kubectl cluster-info dump -A --output-directory DIR` write them):
      extender explain
      extender explain --cluster cluster.yaml
    One pod; with every node; with every filter's verdict on one node:
      extender explain shop/web-0 --cluster cluster.yaml
      extender explain pod/web-0 -n shop --nodes
      extender explain web-0 -n shop --node worker-3
    A pod group: how many members find a node together, what the next one lacks, and what would admit all:
      extender explain podgroup/train -n ml
    A pod that does not exist yet, or the template of a Deployment, StatefulSet, DaemonSet, Job, CronJob ...:
      extender explain -f pod.yaml --cluster cluster.yaml -o json
    A page with a map of the nodes, in one file to attach to a ticket:
      extender explain shop/web-0 -o html > web-0.html
    What a running process decided about a pod, and when; the last decision about every pod:
      extender explain shop/web-0 --from http://127.0.0.1:8888
      extender explain --from http://127.0.0.1:8889
      extender explain --in-cluster extender-system/extender:8889
    Many cases {"name": ..., "cluster": {"items": [...]}, "pod": {...}}, one per line:
      extender explain --batch < cases.jsonl > answers.jsonl

    If you may not read some kind of object, a note says so and what the answer leaves out.

    Exit status: 0 if the pod fits or the list is complete; 3 if the pod does not fit now; 2 for wrong usage or input; 1
    for a failure, or if nodes cannot be read and no scheduler has written a verdict into the pod.
    """
    lists = selector is not None or sort_by is not None
    if server is not None or in_cluster is not None:
        _refuse_if(
            bool(filename or nodes or node or batch or lists or source.cluster or (server and in_cluster)),
            "--from and --in-cluster take at most a POD, because they do not read a cluster",
        )
        _refuse_if(output.is_page, "--from and --in-cluster cannot print a page, so -o html needs a cluster")
        _refuse_if(bool(server and source.names_cluster), "--from takes an address, not a kubeconfig")
        namespace = source.namespace or "default" if server else source.default_namespace()
        key = pod_key(pod, namespace) if pod else None
        _past(_replicas(source, server, in_cluster), key, output)
        return
    if batch:
        _refuse_if(
            bool(pod or filename or source.names_cluster), "--batch reads clusters and pods from standard input only"
        )
        sys.exit(_answer_all(sys.stdin.buffer, source.profiles(), changes))
    _refuse_if(pod is not None and filename is not None, "give one pod: either POD or -f FILE")
    if pod is None and filename is None:
        _refuse_if(bool(node or nodes), "--node and --nodes need a pod: POD or -f FILE")
        _list(source, "" if all_namespaces else source.namespace or "", selector, sort_by, output)
        return
    _refuse_if(lists, "-l and --sort-by are for the list of pending pods, without a POD or -f FILE")
    if pod is not None and (group := group_key(pod, source.default_namespace())) is not None:
        _refuse_if(bool(node or nodes), f"--node and --nodes show one pod, but {pod} is a group")
        sys.exit(_explain_group(source, *group, changes, output))
    sys.exit(_explain(source, pod, filename, node, nodes or output.is_wide, changes, output))


def _refuse_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise ConfigurationError([message])


def _replicas(source: Source, server: str | None, in_cluster: str | None) -> Iterable[RunningReplica]:
    if in_cluster is not None:
        return replicas_in(source.access, in_cluster, _PORT)
    return [AddressedReplica(server or "", "--from", "`extender serve` or `schedule`")]


def _past(replicas: Iterable[RunningReplica], key: str | None, output: Output) -> None:
    """Prints the decisions of the first replica that remembers any, because only the leader decides."""
    from extender.runtime.text import aligned

    path = f"{_DECISIONS}?{urlencode({'pod': key})}" if key else _DECISIONS
    for server in replicas:
        status, body = server.get(path)
        if status == _OK and body.strip() != _NO_DECISIONS:
            break
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    if status == _NOT_FOUND and key and "no decision" in str(document.get("error")):
        raise UnknownPod(document["error"])
    if status != _OK:
        reason = document.get("error") or "is it `extender serve` or `schedule`, with decisionsSeconds above 0?"
        raise ExtenderError(f"{server}{_DECISIONS} answers {status}: {reason}")
    if not isinstance(document.get("decisions" if key else "pods"), list):
        raise ExtenderError(f"{server}{_DECISIONS} answers without decisions: is it `extender serve` or `schedule`?")
    if not output.is_text:
        show(headed(DocumentKind.DECISIONS, document), output)
        return
    lines = [("TIME", "POD", "DECISION", "OUTCOME")]
    for decision in document["decisions"] if key else document["pods"]:
        reasons = ", ".join(f"{nodes} {reason}" for reason, nodes in decision.get("reasons", {}).items())
        victims = f"; victims: {', '.join(decision['victims'])}" if decision.get("victims") else ""
        outcome = f"{decision['outcome']}{f' ({reasons})' if reasons else ''}{victims}"
        time = datetime.fromtimestamp(decision["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines.append((time, key or decision["pod"], decision["what"], outcome))
    say("\n".join(aligned(lines)))


def _list(source: Source, namespace: str, selector: Selector | None, sort_by: JsonPath | None, output: Output) -> None:
    from extender.offline.explain.overview import as_text, pending_groups, pending_pods
    from extender.offline.groups.verdict import GroupVerdicts

    state, unread = source.load(namespace=namespace, needs_nodes=False)
    verdicts = GroupVerdicts(state)
    pods = pending_pods(state, namespace, Progress("pending pods"), selector=selector, groups=verdicts)
    groups = [] if state.nodes_unread else pending_groups(state, verdicts, pods)
    by_key = {(pod.namespace, pod.name): pod for pod in pods}
    listed = in_order([pod.to_dict() for pod in pods], sort_by)
    lines = as_text([by_key[each["namespace"], each["name"]] for each in listed], groups, datetime.now(UTC))
    document = {"pending": listed, "groups": [group.to_dict() for group in groups]}
    print_answer(lines, DocumentKind.PENDING_PODS, document, unread, output, "pending.html")


def _explain_group(source: Source, kind: str, key: str, changes: bool, output: Output) -> int:
    from extender.offline.explain.group import explain_group
    from extender.offline.explain.terminal import group_summary

    state, unread = source.load(namespace=key.partition("/")[0], needs_nodes=True)
    explanation = explain_group(state, kind, key)
    lines, document = group_summary(explanation, changes=changes), explanation.to_dict(changes=changes)
    print_answer(lines, DocumentKind.GROUP_EXPLANATION, document, unread, output, "group.html")
    return 0 if explanation.fits else DOES_NOT_FIT


def _explain(
    source: Source,
    pod: str | None,
    filename: Path | None,
    node: str | None,
    nodes: bool,
    changes: bool,
    output: Output,
) -> int:
    workloads = source.workloads([filename]) if filename else []
    key = pod_key(pod, source.default_namespace()) if pod else ""
    state, unread = source.load(namespace=key.partition("/")[0], needs_nodes=bool(node))
    explanations = []
    for number, explanation in enumerate(_explanations(state, key, workloads)):
        explanation.notes = [*explanation.notes, *unread]
        explanations.append(explanation)
        if output.is_text:
            lines = list(_lines(explanation, node, nodes, changes))
            say("\n".join(["", *lines] if number else lines))
    if not output.is_text and not output.is_page:
        documents = [explanation.to_dict(changes=changes) for explanation in explanations]
        if node:
            for document, explanation in zip(documents, explanations, strict=True):
                document["filters"] = {
                    v.plugin: None if v.is_disabled else list(v.reasons) for v in explanation.on_node(node)
                }
        show(one_or_list(DocumentKind.EXPLANATION, documents), output)
    if output.is_page:
        if len(explanations) > 1:
            raise ConfigurationError([f"-o html shows one pod, but the file has {len(explanations)}"])
        say(explanations[0].to_html(changes=changes))
    return _status(explanations)


def _status(explanations: Sequence[Explanation]) -> int:
    if not all(explanation.is_known for explanation in explanations):
        return FAILURE
    return 0 if all(explanation.fits for explanation in explanations) else DOES_NOT_FIT


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
    """Prints an answer for each line. Returns the exit status, which is 1 if any answer is an error."""
    from extender.offline.batch import answers

    any_error = False
    for answer in answers(lines, profiles, changes=changes):
        is_error = "error" in answer
        any_error |= is_error
        kind = DocumentKind.CASE_ERROR if is_error else DocumentKind.EXPLANATION
        say(json.dumps(headed(kind, answer), separators=(",", ":")))
    return FAILURE if any_error else 0
