"""The command `extender explain`: why pods are pending, or where they would be placed.

With `--from` or `--in-cluster` it prints what a running process decided about pods.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from extender.cli.completion import nodes as nodes_named
from extender.cli.completion import pods_and_groups
from extender.cli.document_kinds import DocumentKind, headed, one_or_list
from extender.cli.output import Format, Output, in_order, list_options, output_option, say, show, switch
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
from extender.cli.source_options import (
    ACCESS,
    DOES_NOT_FIT,
    KIND_PREFIXES,
    Progress,
    Source,
    add_new_nodes,
    add_node_option,
    filenames_option,
    group_key,
    known_pod,
    pod_key,
    print_answer,
    refuse_options,
    source_options,
)
from extender.errors import ConfigurationError, ExtenderError, UnknownPod
from extender.runtime.text import aligned

if TYPE_CHECKING:
    from extender.cli.output import JsonPath
    from extender.model.selectors import Selector
    from extender.offline.explain.explanation import Explanation
    from extender.offline.manifests.templates import Workload
    from extender.offline.remarks import WrittenEvent
    from extender.offline.state import ClusterState

_PATH = "/debug/decisions"
_CHECK = "check that it is `extender serve` or `schedule`"
_OK = 200
_NOT_FOUND = 404
_NONE: dict[str, Any] = {"pods": []}
FAILURE = 1
_PORT = 8888
_OF_A_LIST = ("all_namespaces", "selector", "sort_by")
_NOT_FOR_DECISIONS = ("filename", "cluster", "policy", "nodes", "node", "add_node", "changes", "batch", "selector")
_ONLY_STANDARD_INPUT = "--batch reads clusters and pods from standard input only"
_NOT_IN_A_BATCH = ("filename", "cluster", "nodes", "node", "add_node", "namespace", *ACCESS, *_OF_A_LIST)


def print_decisions(replicas: Iterable[RunningReplica], key: str, output: Output) -> None:
    """Prints the decisions about the pod NAMESPACE/NAME, the oldest first. Raises UnknownPod, ExtenderError."""
    document = _document(replicas, key)
    if not output.is_text:
        show(headed(DocumentKind.DECISIONS, document), output)
        return
    _print_table((key, decision) for decision in document["decisions"])


def print_last_decisions(
    replicas: Iterable[RunningReplica], namespace: str, sort_by: JsonPath | None, output: Output
) -> None:
    """Prints the last decision about each pod of `namespace`; "" means all namespaces. Raises ExtenderError."""
    document = _document(replicas)
    pods = [each for each in document["pods"] if not namespace or each["pod"].startswith(f"{namespace}/")]
    pods = in_order(pods, sort_by)
    if not output.is_text:
        show(headed(DocumentKind.DECISIONS, {**document, "pods": pods}), output)
    elif pods:
        _print_table((decision["pod"], decision) for decision in pods)
    else:
        pods_of = f"pods in the namespace {namespace}" if namespace else "pods"
        click.echo(f"no decisions about {pods_of} are remembered", err=True)


def _document(replicas: Iterable[RunningReplica], key: str = "") -> dict[str, Any]:
    """Returns the answer of the first replica that has decisions, because only the leader decides."""
    path = f"{_PATH}?{urlencode({'pod': key})}" if key else _PATH
    for server in replicas:
        status, document = document_of(server, path)
        if status == _OK and document != _NONE:
            break
    if status == _NOT_FOUND and key and "no decision" in str(document.get("error")):
        raise UnknownPod(document["error"])
    if status != _OK:
        reason = document.get("error") or _CHECK
        raise ExtenderError(f"{server}{_PATH} answers {status}: {reason}")
    if not isinstance(document.get("decisions" if key else "pods"), list):
        raise ExtenderError(f"{server}{_PATH} answers, but not with decisions: {_CHECK}")
    return document


def _print_table(decisions: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    lines = [("TIME", "POD", "DECISION", "OUTCOME")]
    for pod, decision in decisions:
        reasons = ", ".join(f"{nodes} {reason}" for reason, nodes in decision.get("reasons", {}).items())
        victims = f"; victims: {', '.join(decision['victims'])}" if decision.get("victims") else ""
        outcome = f"{decision['outcome']}{f' ({reasons})' if reasons else ''}{victims}"
        time = datetime.fromtimestamp(decision["at"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines.append((time, pod, decision["what"], outcome))
    say("\n".join(aligned(lines)))


def _one_name(_: click.Context, __: click.Parameter, words: Sequence[str]) -> str | None:
    """Returns the name; `pod web-0`, as kubectl's users type it, becomes `pod/web-0`."""
    if len(words) == 2 and words[0] in KIND_PREFIXES:
        return "/".join(words)
    if len(words) > 1:
        raise click.UsageError(f"Got unexpected extra argument ({words[1]})")
    return words[0] if words else None


@click.command()
@click.argument("pod", metavar="[POD]", nargs=-1, callback=_one_name, shell_complete=pods_and_groups)
@filenames_option("to explain", many=False)
@partial(source_options, namespace_of="POD, if its name has none, and of the pods to list")
@switch("-A", "--all-namespaces", help="list the pending pods of all namespaces (the default without -n)")
@list_options
@switch("--nodes", help="show every node with its scores or its reasons (as -o wide does)")
@click.option(
    "--node", metavar="NAME", shell_complete=nodes_named, help="show the verdict of every filter on this node"
)
@add_node_option
@switch("--changes", default=True, help="search for the smallest change that would let the pod run")
@output_option(page=True)
@click.option(
    "--from", "server", metavar="URL", help="show what a running `serve` or `schedule` decided, instead of deciding"
)
@IN_CLUSTER_OPTION
@tls_options
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
    add_node: Sequence[str],
    changes: bool,
    output: Output,
    server: str | None,
    in_cluster: str | None,
    batch: bool,
    tls: ServerTls,
) -> None:
    """Explain why a pod is pending, or where it would be placed, and what would let it run.

    \b
    Explain all pending pods, grouped by cause, of a live cluster. Then do the same for a file or directory that
    `kubectl get nodes,pods -A -o yaml` or `kubectl cluster-info dump -A --output-directory DIR` has written:
      extender explain
      extender explain --cluster cluster.yaml
    Explain one pod; --nodes adds the result for every node, and --node shows what every filter says about one node:
      extender explain shop/web-0 --cluster cluster.yaml
      extender explain pod/web-0 -n shop --nodes
      extender explain web-0 -n shop --node worker-3
    Show how many members of a pod group can be placed together, what the next one lacks, and what would let all run:
      extender explain podgroup/train -n ml
    Explain a pod that does not exist yet, or the template of a Deployment, StatefulSet, DaemonSet, Job, CronJob ...:
      extender explain -f pod.yaml --cluster cluster.yaml -o json
    Write a page with a map of the nodes, in one file that you can attach to a ticket:
      extender explain shop/web-0 -o html > web-0.html
    Ask a running process what it decided about a pod and when, or for its last decision about every pod:
      extender explain shop/web-0 --from http://127.0.0.1:8888
      extender explain -n shop --sort-by .at --from http://127.0.0.1:8889
      extender explain --in-cluster extender-system/extender:8889
    Answer many cases {"name": ..., "cluster": {"items": [...]}, "pod": {...}}, which are read one per line:
      extender explain --batch < cases.jsonl > answers.jsonl

    If you may not read some kind of object, a note says so and what the answer leaves out.

    Exit status: 0 if the pod fits or the list is complete; 3 if the pod does not fit now; 2 for wrong usage or input; 1
    for a failure, or if nodes cannot be read and no scheduler has written a verdict into the pod.
    """
    listed_namespace = "" if all_namespaces else source.namespace or ""
    if server is not None or in_cluster is not None:
        _show_decisions(source, pod, listed_namespace, server, in_cluster, sort_by, output, tls)
        return
    refuse_options(TLS, "these options need --from URL")
    if batch:
        refuse_options(_NOT_IN_A_BATCH, _ONLY_STANDARD_INPUT)
        _refuse_if(pod is not None, _ONLY_STANDARD_INPUT)
        _refuse_if(output.format not in (Format.TABLE, Format.JSON), "--batch prints JSON, one document per line")
        sys.exit(_answer_all(sys.stdin.buffer, source, changes))
    _refuse_if(pod is not None and filename is not None, "give one pod: either POD or -f FILE")
    if pod is None and filename is None:
        refuse_options(("node", "nodes", "add_node", "changes"), "these options need a pod: POD or -f FILE")
        _list(source, listed_namespace, selector, sort_by, output)
        return
    refuse_options(_OF_A_LIST, "only for the list of pending pods, without POD and -f FILE")
    if pod is not None and (group := group_key(pod, source.default_namespace())) is not None:
        refuse_options(("node", "nodes"), f"only for one pod, but {pod} is a group")
        sys.exit(_explain_group(source, *group, add_node, changes, output))
    if output.is_page:
        refuse_options(("node",), "cannot be used with -o html, which always shows every node")
    sys.exit(_explain(source, pod, filename, node, add_node, nodes or output.is_wide, changes, output))


def _refuse_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise ConfigurationError([message])


def _show_decisions(
    source: Source,
    pod: str | None,
    listed_namespace: str,
    server: str | None,
    in_cluster: str | None,
    sort_by: JsonPath | None,
    output: Output,
    tls: ServerTls,
) -> None:
    """Prints what a running process decided about `pod`; without a pod, its last decision about every pod."""
    _refuse_if(bool(server and in_cluster), "give one process: either --from URL or --in-cluster NAMESPACE/DEPLOYMENT")
    refuse_options(_NOT_FOR_DECISIONS, "--from and --in-cluster show remembered decisions: name only a POD with them")
    _refuse_if(output.is_page, "--from and --in-cluster cannot print a page; use -o html with a cluster")
    if server:
        refuse_options(ACCESS, "--from takes an address, not a kubeconfig")
    else:
        refuse_options(TLS, "these options need --from URL: --in-cluster goes through the API server")
    addressed = AddressedReplica(server or "", "--from", "`extender serve` or `schedule`", tls)
    replicas = replicas_of(in_cluster, source.access, _PORT, addressed)
    if pod is None:
        print_last_decisions(replicas, listed_namespace, sort_by, output)
        return
    refuse_options(_OF_A_LIST, "cannot be used with POD, because it is about the list of decisions")
    namespace = source.namespace or "default" if server else source.default_namespace()
    _refuse_if(group_key(pod, namespace) is not None, f"decisions are about pods, but {pod} is a group")
    print_decisions(replicas, pod_key(pod, namespace), output)


def _list(source: Source, namespace: str, selector: Selector | None, sort_by: JsonPath | None, output: Output) -> None:
    from extender.offline.explain.overview import as_text, none_pending, pending
    from extender.offline.remarks import unasked_plugins

    state, unread = source.load(namespace=namespace, needs_nodes=False)
    result = pending(state, namespace, Progress("pending pods"), selector=selector)
    by_key = {(pod.namespace, pod.name): pod for pod in result.pods}
    document = result.to_dict()
    document["pending"] = listed = in_order(document["pending"], sort_by)
    pods = [by_key[each["namespace"], each["name"]] for each in listed]
    if_none = none_pending(state, namespace, is_selected=selector is not None)
    lines = as_text(pods, result.groups, datetime.now(UTC), if_none=if_none)
    notes = [*unread, *unasked_plugins(state, [state.infos[f"{pod.namespace}/{pod.name}"].pod for pod in result.pods])]
    print_answer(lines, DocumentKind.PENDING_PODS, document, notes, output, "pending.html")


def _explain_group(source: Source, kind: str, key: str, add_node: Sequence[str], changes: bool, output: Output) -> int:
    from extender.offline.explain.group import explain_group
    from extender.offline.explain.terminal import group_summary

    state, unread = source.load(namespace=key.partition("/")[0], needs_nodes=True)
    unread += add_new_nodes(state, add_node)
    explanation = explain_group(state, kind, key)
    lines, document = group_summary(explanation, changes=changes), explanation.to_dict(changes=changes)
    print_answer(lines, DocumentKind.GROUP_EXPLANATION, document, unread, output, "group.html")
    return 0 if explanation.fits else DOES_NOT_FIT


def _explain(
    source: Source,
    pod: str | None,
    filename: Path | None,
    node: str | None,
    add_node: Sequence[str],
    nodes: bool,
    changes: bool,
    output: Output,
) -> int:
    workloads = source.workloads([filename]) if filename else []
    key = pod_key(pod, source.default_namespace()) if pod else ""
    state, unread = source.load(namespace=key.partition("/")[0], needs_nodes=bool(node))
    unread += add_new_nodes(state, add_node)
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
        say(explanations[0].to_html(changes=changes, events=_events(source, explanations[0]) if key else ()))
    return _status(explanations)


def _events(source: Source, explanation: Explanation) -> Sequence[WrittenEvent]:
    """Returns the events about the pod in a live cluster."""
    if source.cluster is not None:
        return ()
    from extender.offline.live import events_of

    return events_of(source.live_access(), explanation.pod)


def _status(explanations: Sequence[Explanation]) -> int:
    if not all(explanation.is_known for explanation in explanations):
        return FAILURE
    return 0 if all(explanation.fits for explanation in explanations) else DOES_NOT_FIT


def _explanations(state: ClusterState, key: str, workloads: Sequence[Workload]) -> Iterable[Explanation]:
    from extender.offline.explain.explanation import Explanation, explain_workload
    from extender.offline.plan.plan import find_moves

    if key:
        yield Explanation(state, known_pod(state, key), find_moves=find_moves)
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


def _answer_all(lines: Iterable[bytes], source: Source, changes: bool) -> int:
    """Prints an answer for each line, a case in JSON. Returns the exit status, which is 1 if any answer is an error."""
    from extender.offline.explain.overview import answers

    any_error = False
    for answer in answers(lines, source.profiles(), changes=changes, seconds=source.timeout_seconds):
        is_error = "pod" not in answer
        any_error |= is_error
        kind = DocumentKind.CASE_ERROR if is_error else DocumentKind.EXPLANATION
        say(json.dumps(headed(kind, answer), separators=(",", ":")))
    return FAILURE if any_error else 0
