"""The command `extender view`: shows a snapshot, a live cluster or a recording in a browser on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from extender.cli.output import say
from extender.cli.source_options import Progress, Source, profiles_of, refuse_options, source_options
from extender.errors import ConfigurationError


@click.command()
@partial(source_options, whole=True, asks=False)
@click.option(
    "--with",
    "others",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="another policy, to compare side by side with --policy",
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="show the cluster at each step of this recording, a file of `extender record` or --record",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8890, show_default=True, help="port to listen on; 0: any free port"
)
def view(source: Source, others: Sequence[Path], recording: Path | None, port: int) -> None:
    """Show a cluster in a browser: pending pods by cause, each pod, a map of the nodes, a comparison of two policies.

    A live cluster is read again when a page is opened, at most every 10 seconds. Nothing is written to it, and only
    this machine can see the pages.

    \b
    A file or directory; the live cluster of a context:
      extender view --cluster cluster.json.gz
      extender view --context production
    Two policies side by side:
      extender view --cluster cluster.json.gz --policy now.yaml --with next.yaml
    A recording, with a slider through its steps:
      extender view --recording recording.jsonl.gz

    `extender serve` and `extender schedule` have the same pages at /ui.

    Exit status: 0 after Ctrl-C, 2 for wrong usage or input, 1 for a failure, such as a port in use.
    """
    # imported here, because --help must not wait for NumPy
    from extender.app.ui import LiveCluster, look_at_cluster, look_at_recording
    from extender.app.ui import view as run
    from extender.ui.documents import Choices

    if recording is not None and source.names_cluster:
        raise ConfigurationError(["give either --recording FILE or a cluster"])
    if recording is not None:
        refuse_options(("namespace",), "cannot be used with --recording, which is read with all namespaces")
        judged_by = source.profiles() if source.policy else None
        look = look_at_recording(recording, judged_by, source.kubernetes_version)
    elif source.cluster is None:
        look = LiveCluster(source.load).look
    else:
        look = look_at_cluster(source.load()[0], str(source.cluster))
    version = source.kubernetes_version
    compared = {path.name: profiles for path in others if (profiles := profiles_of(path, version=version))}
    name = source.policy.name if source.policy else "the recording's" if recording else "defaults"
    run(
        look,
        Choices(name, compared, progress=Progress("pods")),
        port,
        lambda address: say(f"serving {address} until Ctrl-C"),
        source.timeout_seconds,
    )
