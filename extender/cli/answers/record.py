"""The commands `extender record` and `replay`: a cluster's changes in a file, and what was decided decided again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from extender.cli.answers.sources import (
    DOES_NOT_FIT,
    Progress,
    Source,
    answer_stream,
    answering,
    say,
    show,
    source_options,
)
from extender.cli.files import told, write_whole
from extender.config.sources import load
from extender.errors import ConfigurationError, MalformedInput

if TYPE_CHECKING:
    from extender.cache.contents import CacheSize

DIFFERS = DOES_NOT_FIT
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@source_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    metavar="FILE",
    help="the file to write, with gzip where it ends in .gz; -: stdout",
)
@click.option("--redact", is_flag=True, help="hash names, label values and images; equal ones stay equal")
def snapshot(source: Source, output: Path, redact: bool) -> None:
    """Write a cluster down: all kinds that scheduling looks at, nothing else of them.

    Environment variables, commands, secrets and annotations that no rule reads are left out. With --redact names, label
    values and images become hashes, and the same is decided on them; keys of labels, taints and resources stay.

    \b
    Of a live cluster; to be attached to a ticket:
      extender snapshot -o cluster.json.gz
      extender snapshot -o cluster.json.gz --redact --context production
      extender explain --cluster cluster.json.gz
    """
    from extender.offline.manifests.snapshot import write_snapshot

    state, unread = source.load()
    data = write_snapshot(state.every_object(), redact=redact, compress=output.suffix == ".gz")
    if str(output) == "-":
        if (stdout := answer_stream()) is None:
            raise ConfigurationError(["-o -: standard output is closed, give a file with -o FILE"])
        stdout.buffer.write(data)
        stdout.flush()
    elif output.exists() and not output.is_file():  # /dev/stdout, a pipe
        output.write_bytes(data)
    else:
        write_whole(output, data)
    for note in unread:
        click.echo(f"note: {note}", err=True)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--kubeconfig", type=_FILE, metavar="FILE", help="the cluster  [default: $KUBECONFIG, ~/.kube/config]")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), metavar="N", help="for so long  [default: until Ctrl-C]"
)
@click.option("--record-bytes", metavar="VALUE", help="about what it may take on disk  [default: 256Mi]")
@click.option("--redact", is_flag=True, help="hash names, label values and images; equal ones stay equal")
def record(file: Path, kubeconfig: Path | None, seconds: float | None, record_bytes: str | None, redact: bool) -> None:
    """Write down what changes in a cluster, as its watches tell; nothing is decided, and nothing written to it.

    Environment variables, commands and secrets are left out. With --redact names, label values and images become
    hashes, as in `extender snapshot --redact`, and the policy is left out.

    \b
    For ten minutes, with gzip; then what happened, step by step:
      extender record recording.jsonl.gz --seconds 600
      extender replay recording.jsonl.gz --steps

    Calls and decisions are recorded by `extender serve --record FILE` and `extender schedule --record FILE`.

    Exit status: 0 recorded, 2 wrong usage, 1 failure.
    """
    given = {
        "kubeconfig": Source(kubeconfig=kubeconfig).kubeconfig_file(),
        "record": file,
        "log_format": "text",
        "log_level": "warning",
        **({"record_bytes": record_bytes} if record_bytes else {}),
    }
    settings = load(None, os.environ, given)
    from extender.app.live import readable
    from extender.app.recording.observation import record as run

    names, notes = readable(settings) if settings.cluster is None else ([], [])
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if notes:
        settings = settings.model_copy(update={"watch_kinds": tuple(names)})
    size = run(settings, seconds, _tell, redact=redact)
    click.echo(f"recorded to {file}: {size.nodes} nodes and {size.pods} pods in the end")


def _tell(size: CacheSize) -> None:
    if sys.stderr.isatty():
        click.echo(f"\rrecording: {size.nodes} nodes, {size.pods} pods\x1b[K", err=True, nl=False)


@click.command()
@click.argument("files", type=_FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("--policy", type=_FILE, metavar="FILE", help="other rules to decide by  [default: the recording's own]")
@click.option("--steps", is_flag=True, help="list what happened, step by step, and decide nothing")
@click.option(
    "-o", "--output", type=click.Choice(("table", "wide", "yaml", "json")), default="table", show_default=True
)
def replay(files: tuple[Path, ...], policy: Path | None, steps: bool, output: str) -> None:
    """Decide every call and attempt of a recording again, and tell what differs and why.

    Each is decided on the cluster as it was at its own moment. Under the rules of the recording none differs, unless
    another version of the program decides otherwise; under others the plugins behind each difference are named.

    \b
    Is it decided as it was; what would another policy have changed; what happened:
      extender replay recording.jsonl.gz
      extender replay recording.jsonl.gz --policy next.yaml -o json
      extender replay recording.jsonl.gz --steps
    The older files of a recording that was rotated, each for itself:
      extender replay recording.jsonl.gz recording.jsonl.gz.1

    Exit status: 0 none differs, 3 some do, 2 wrong usage or input, 1 failure.
    """
    try:
        with answering():
            sys.exit(_replay(files, policy, steps, output))
    except (MalformedInput, OSError) as error:
        if isinstance(error, OSError) and error.filename is None:
            raise  # of the terminal
        raise ConfigurationError([told(error) if isinstance(error, OSError) else str(error)]) from None


def _replay(files: tuple[Path, ...], policy: Path | None, steps: bool, output: str) -> int:
    from extender.offline.recording.reading import Recording
    from extender.offline.recording.replay import as_text, steps_text
    from extender.offline.recording.replay import replay as decide_again

    differs, documents = False, []
    for number, file in enumerate(files):
        recording = Recording.load(file)
        result = None if steps else decide_again(recording, policy, Progress("decisions"))
        differs |= bool(result and result.changed)
        if output in ("json", "yaml"):
            found = {"steps": [each.to_dict() for each in recording.steps]} if result is None else result.to_dict()
            documents.append({"file": str(file), **found})
            continue
        if len(files) > 1:
            say(f"{'' if number == 0 else chr(10)}{file}:")
        lines = steps_text(recording.steps) if result is None else as_text(result, every=output == "wide")
        for line in lines:
            say(line)
    if documents:
        show(documents[0] if len(documents) == 1 else documents, output)
    return DIFFERS if differs else 0
