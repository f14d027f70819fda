"""The command `extender demo`: the shipped cluster served on loopback, and calls to try on it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from extender.config.sources import load

EXAMPLE = Path(__file__).parents[1] / "offline" / "example.yaml"
POD, PENDING = "shop/api-58b9c-w8x5n", "ml/recommend-7f6d-v4nzs"
CALL = "{extender} demo {verb} | curl -s {address}/scheduler/{verb} -H 'Content-Type: application/json' -d @-"


@click.command()
@click.argument("verb", type=click.Choice(("filter", "bind")), required=False)
@click.option("--bind", metavar="HOST:PORT", default="127.0.0.1:8888", show_default=True, help="where to listen")
def demo(verb: str | None, bind: str) -> None:
    """Serve a made-up cluster of 20 nodes, and say what to try on it; no Kubernetes needed.

    With VERB, print the body of such a call for a pod of that cluster instead.
    """
    if verb is None:
        _serve(bind)
    else:
        _print_body(verb)


def _serve(address: str) -> None:
    from extender.app.serve import serve  # --help need not wait for NumPy

    extender = "extender" if shutil.which("extender") else sys.argv[0]
    settings = load(None, {}, {"cluster": str(EXAMPLE), "bind": address, "log_format": "text", "drain_seconds": "0"})
    click.echo(f"A made-up cluster of 20 nodes, served on {address} until Ctrl-C. Try in another terminal:")
    for verb in ("filter", "bind"):
        click.echo(f"  {CALL.format(extender=extender, verb=verb, address=address)}")
    click.echo(f"  {extender} explain {PENDING} --cluster {EXAMPLE}")
    serve(settings)


def _print_body(verb: str) -> None:
    import msgspec

    from extender.offline.cluster import Cluster

    cluster = Cluster.load(EXAMPLE)
    pod = cluster.pod(POD)
    body: Mapping[str, Any] = {"Pod": pod, "Nodes": None, "NodeNames": cluster.nodes}
    if verb == "bind":
        node = cluster.decide(pod).best[0]
        body = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
    click.echo(msgspec.json.encode(body))
