"""The command `extender view`: the page about a snapshot or a live cluster, for a browser on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from extender.cli.answers.sources import Progress, Source, profiles_of, say, source_options
from extender.errors import ConfigurationError


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
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="a file of `extender record` or --record: its clusters, step by step",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8890, show_default=True, help="0: one that is free")
def view(source: Source, others: Sequence[Path], recording: Path | None, port: int) -> None:
    """Look at a cluster in a browser: pending pods by cause, each pod, a map of the nodes, two configurations.

    The cluster is read once, as it is at the start; nothing is written to it, and only this machine can look.

    \b
    A file or folder; the live cluster of the kubeconfig's context:
      extender view --cluster cluster.json.gz
      extender view --context production
    Two policies side by side, for the pods that wait:
      extender view --cluster cluster.json.gz --policy now.yaml --with next.yaml
    A recording, with a slider through its steps:
      extender view --recording recording.jsonl.gz

    `extender serve` and `extender schedule` have the same pages at /ui.
    """
    from extender.app.ui import look_at_cluster, look_at_recording  # --help need not wait for NumPy
    from extender.app.ui import view as run
    from extender.ui.documents import Choices

    if recording is not None and (source.cluster or source.kubeconfig or source.context):
        raise ConfigurationError(["give one: --recording FILE or a cluster"])
    if recording is not None:
        look = look_at_recording(recording, source.profiles())
    else:
        state, unread = source.load()
        look = look_at_cluster(state, str(source.cluster) if source.cluster else "live cluster", unread)
    compared = {path.name: profiles for path in others if (profiles := profiles_of(path))}
    name = source.policy.name if source.policy else "the recording's" if recording else "defaults"
    run(
        look,
        Choices(name, compared, progress=Progress("pods")),
        port,
        lambda address: say(f"serving {address} until Ctrl-C"),
    )
