"""The command `extender explain`: one pod against a cluster, or many cases from standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from extender.errors import ConfigurationError, MalformedCluster
from extender.runtime import strict_yaml

if TYPE_CHECKING:  # NumPy takes longer to load than --help may take
    from extender.framework.profile import Profiles
    from extender.offline.cluster import Cluster
    from extender.offline.decision import Decision

FAILURE = 1


@click.command()
@click.argument("pod", metavar="[NAMESPACE/NAME]", required=False)
@click.option("-f", "--filename", type=click.File("rb"), metavar="FILE", help="pod to explain (YAML, JSON); -: stdin")
@click.option("--cluster", type=click.Path(path_type=Path), metavar="PATH", help="file or directory of objects")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="kubeconfig of a live cluster")
@click.option("--policy", type=click.Path(path_type=Path), metavar="FILE", help="rules and weights to decide by")
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True)
@click.option("--batch", is_flag=True, help="answer cases from standard input, one a line")
def explain(
    pod: str | None,
    filename: BinaryIO | None,
    cluster: Path | None,
    kubeconfig: Path | None,
    policy: Path | None,
    output: str,
    batch: bool,
) -> None:
    """Tell where a pod can go, and why nowhere else.

    \b
    A pod that waits, in a file (as `kubectl get nodes,pods -A -o yaml` prints it) or in a live cluster:
      extender explain shop/web-0 --cluster cluster.yaml
      extender explain shop/web-0 --kubeconfig ~/.kube/config
    A pod that is not there yet; every score as JSON:
      extender explain -f pod.yaml --cluster cluster.yaml -o json
    Many cases {"name": ..., "cluster": {"items": [...]}, "pod": {...}}, one a line; one answer a line:
      extender explain --batch < cases.jsonl > answers.jsonl
    """
    if batch:
        if pod or filename or cluster or kubeconfig:
            raise ConfigurationError(["--batch reads clusters and pods from standard input alone"])
        sys.exit(_answer_all(sys.stdin.buffer, _profiles(policy, None)))
    if (pod is None) == (filename is None):
        raise ConfigurationError(["give one pod: NAMESPACE/NAME of one in the cluster, or -f FILE"])
    _show(_decision(_cluster(cluster, kubeconfig, _profiles(policy, kubeconfig)), pod, filename), output)


def _profiles(policy: Path | None, kubeconfig: Path | None) -> Profiles | None:
    if policy is None:
        return None
    from extender.app.policies import profiles_of

    return profiles_of(policy, "DefaultProvider", kubeconfig=kubeconfig)


def _cluster(path: Path | None, kubeconfig: Path | None, profiles: Profiles | None) -> Cluster:
    from extender.offline.cluster import Cluster

    if path is not None and kubeconfig is None:
        return Cluster.load(path, profiles)
    if kubeconfig is not None and path is None:
        from extender.app.feed import live_objects

        return Cluster(live_objects(kubeconfig), profiles)
    raise ConfigurationError(["give one cluster: --cluster PATH or --kubeconfig FILE"])


def _decision(cluster: Cluster, key: str | None, filename: BinaryIO | None) -> Decision:
    if filename is None:
        return cluster.decide(cluster.pod(key or ""))
    document = strict_yaml.load(filename.read())
    if not isinstance(document, dict) or document.get("kind", "Pod") != "Pod":
        raise MalformedCluster(f"{filename.name}: want one Pod")
    return cluster.decide(document)


def _show(decision: Decision, output: str) -> None:
    from extender.offline import explanation

    if output == "json":
        click.echo(json.dumps(explanation.as_json(decision), indent=2))
        return
    for line in explanation.as_text(decision):
        click.echo(line)


def _answer_all(lines: Iterable[bytes], profiles: Profiles | None) -> int:
    """Prints an answer for each line; the exit status: 1 if any of them has an error."""
    from extender.offline.batch import answers

    failed = False
    for answer in answers(lines, profiles):
        failed |= "error" in answer
        click.echo(json.dumps(answer, separators=(",", ":")))
    return FAILURE if failed else 0
