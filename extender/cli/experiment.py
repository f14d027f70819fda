"""The commands `extender experiment`: compare device policies on a trace, and start such an experiment."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from extender.cli.document_kinds import DocumentKind, headed
from extender.cli.output import FILE, ListingGroup, Output, answering, output_option, say, say_lines, show, write_whole
from extender.cli.source_options import input_faults, number_option, show_progress
from extender.errors import ConfigurationError

_IMPORTED = """\
# Made by `extender experiment import`; `extender experiment FILE` runs it, and docs/experiments.md explains the fields.
trace: {{format: openb, nodes: {nodes}, pods: {pods}}}
arrivals: {{type: inflated, percent: 130}}
policies: [Random, DotProd, GpuClustering, GpuPacking, BestFit, FGD]
seeds: {{first: 42, last: 51}}
metrics: [allocated, fragmentation, pending, energy]
"""


class _RunsFiles(ListingGroup):
    """A group whose command `run` may be left out before the name of a file."""

    default = "run"

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = [self.default, *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_RunsFiles)
def experiment() -> None:
    """Compare policies that choose devices, on a trace of a cluster.

    \b
      extender experiment examples/experiment/experiment.yaml
      extender experiment import --format openb nodes.csv pods.csv > experiment.yaml
    """


@experiment.command()
@click.argument("file", type=FILE)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="folder of the results  [default: FILE's name, with .results in place of .yaml]",
)
@number_option("--workers", "number of processes  [default: the number of processors]")
@click.option("--dask", metavar="ADDRESS", help="Dask scheduler whose workers make the runs, such as tcp://host:8786")
@output_option()
def run(file: Path, results: Path | None, workers: int | None, dask: str | None, output: Output) -> None:
    """Run an experiment, and write its results as results.csv, results.json and results.html.

    Every policy places the same pods, once for each seed. A run is kept as soon as it is done, so that the same command
    after an interruption makes only the runs that are missing. The page with plots needs Matplotlib: pip install
    'podseat[plots]'.

    \b
      extender experiment examples/experiment/experiment.yaml
      extender experiment run experiment.yaml --results /tmp/results --workers 8

    Exit status: 0 if all runs are done, 2 for wrong usage or input, 1 for a failure.
    """
    with input_faults(), answering():
        from extender.offline.experiment.specification import Experiment
        from extender.offline.experiment.sweep import as_csv, as_page, as_text
        from extender.offline.experiment.sweep import experiment as run_all

        metrics = Experiment.load(file).spec.metrics
        folder = results or file.with_suffix(".results")
        result = run_all(file, folder, workers or os.cpu_count() or 1, _TimeLeft(), dask)
        document = headed(DocumentKind.EXPERIMENT, result.to_dict())
        from json import dumps

        files = {"results.csv": as_csv(result), "results.json": dumps(document, indent=1).encode()}
        notes = []
        try:
            files["results.html"] = as_page(result, metrics, file.stem)
        except ImportError:
            notes.append("the page with plots needs Matplotlib: pip install 'podseat[plots]'")
        for name, content in files.items():
            write_whole(folder / name, content)
        if output.is_text:
            say_lines(as_text(result, metrics), notes)
            say(f"\nwritten: {', '.join(str(folder / name) for name in files)}")
        else:
            show(document, output)


@experiment.command("import")
@click.option(
    "--format",
    "_format",
    type=click.Choice(["openb"]),
    required=True,
    help="format of the trace; openb: the CSV files of Alibaba's cluster-trace-gpu-v2023, plain or gzipped",
)
@click.argument("nodes", type=FILE)
@click.argument("pods", type=FILE)
def import_trace(_format: str, nodes: Path, pods: Path) -> None:
    """Check a trace, and print an experiment on it with every field, in the paper's form.

    \b
      extender experiment import --format openb nodes.csv pods.csv > experiment.yaml

    Exit status: 0 if the trace can be read, 2 for wrong usage or input, 1 for a failure.
    """
    with input_faults(), answering():
        from extender.offline.experiment.specification import read_openb

        for path in (nodes, pods):
            if set(str(path)) & set(":#,{}[]'\"\n"):
                raise ConfigurationError([f"{path}: expected a name without : # , quotes and brackets"])
        trace = read_openb(nodes, pods)
        counts = len(trace.nodes.devices), int(trace.nodes.devices.sum()), len(trace.pods)
        click.echo(f"{counts[0]} nodes, {counts[1]} devices, {counts[2]} pods", err=True)
        say(_IMPORTED.format(nodes=nodes, pods=pods), newline=False)


class _TimeLeft:
    """Shows on the terminal how many runs are done, and how long the others will take."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._kept: int | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._kept is None:
            self._kept = done
        if not sys.stderr.isatty():
            return
        made = done - self._kept
        seconds = (time.monotonic() - self._began) / made * (total - done) if made else 0.0
        left = f", about {_duration(seconds)} left" if made and done < total else ""
        show_progress(f"runs: {done} of {total}{left}" if done < total else "")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
