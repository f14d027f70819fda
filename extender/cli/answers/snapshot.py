"""The command `extender snapshot`: a cluster into one file that every answering command reads."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from extender.cli.answers.sources import Source, source_options


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
    cluster, unread = source.load()
    data = cluster.snapshot(redact=redact, compress=output.suffix == ".gz")
    if str(output) == "-":
        sys.stdout.buffer.write(data)
    else:
        output.write_bytes(data)
    for note in unread:
        click.echo(f"note: {note}", err=True)
