"""The command `extender view`: the page about a snapshot or a live cluster, for a browser on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from extender.cli.sources import Progress, Source, profiles_of, source_options


@click.command()
@source_options
@click.option(
    "--with",
    "others",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="a policy to compare with that of --policy, side by side",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8890, show_default=True, help="0: one that is free")
def view(source: Source, others: Sequence[Path], port: int) -> None:
    """Look at a cluster in a browser: pending pods by cause, each pod, a map of the nodes, two configurations.

    The cluster is read once, as it is at the start; nothing is written to it, and only this machine can look.

    \b
    A file or folder; the live cluster of the kubeconfig's context:
      extender view --cluster cluster.json.gz
      extender view --context production
    Two policies side by side, for the pods that wait:
      extender view --cluster cluster.json.gz --policy now.yaml --with next.yaml

    `extender serve` and `extender schedule` have the same pages at /ui.
    """
    cluster, unread = source.load()
    from extender.app.view import view as run  # --help need not wait for NumPy
    from extender.ui.documents import Choices

    compared = {path.name: profiles for path in others if (profiles := profiles_of(path))}
    name = source.policy.name if source.policy else "defaults"
    told = str(source.cluster) if source.cluster else "live cluster"
    run(cluster, told, unread, Choices(name, compared, progress=Progress("pods")), port, _announce)


def _announce(address: str) -> None:
    click.echo(f"serving {address} until Ctrl-C")
