"""The command `extender`: parses, loads settings, and hands over to wiring."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, TypeVar

import click

from extender.cli.explain import explain
from extender.cli.reference import reference
from extender.cli.schedule import schedule
from extender.cli.status import status
from extender.config.settings import OPTIONS, Option, Settings
from extender.config.sources import load
from extender.errors import ConfigurationError, ExtenderError

_Command = TypeVar("_Command", bound=Callable[..., Any])

USAGE_ERROR, FAILURE = 2, 1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def cli() -> None:
    """A kube-scheduler extender with an engine and a cache of its own.

    \b
    Try it without a cluster:
      extender serve --cluster nodes-and-pods.yaml
      curl -s 127.0.0.1:8888/readyz?verbose
    """


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"extender {installed_version('extender')}")


def settings_options(command: _Command) -> _Command:
    """Adds --config and a flag for every setting; the command gets `config` and, by name, what was given."""
    for option in reversed(tuple(OPTIONS.values())):
        command = _flag(option)(command)
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="EXTENDER_CONFIG",
        help="settings file (YAML)",
    )
    return config(command)


def _flag(option: Option) -> Callable[[_Command], _Command]:
    shown = ", ".join(option.default) if option.many else option.default
    default = "" if shown in (None, "", False) else f"  [default: {shown}]"
    # --leader-elect alone is true; a file or a variable may have said so, hence --leader-elect=false.
    switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if option.annotation is bool else {}
    return click.option(
        option.flag,
        option.name,
        type=click.Choice(option.choices) if option.choices else str,
        multiple=option.many,
        default=() if option.many else None,
        metavar=None if option.choices else "TEXT" if option.many else _metavar(option),
        help=option.description + default,
        **switch,
    )


def _metavar(option: Option) -> str:
    words = {"bind": "HOST:PORT", "cluster": "PATH", "kubeconfig": "FILE"}
    return words.get(option.name) or ("SECONDS" if option.name.endswith("_seconds") else "VALUE")


@cli.command()
@settings_options
def serve(config: Path | None, **flags: Any) -> None:
    """Answer kube-scheduler's filter, prioritize, preempt and bind calls.

    \b
    Against a cluster, for a scheduler on the same machine:
      extender serve --kubeconfig ~/.kube/config --bind 127.0.0.1:8888
    On objects from a file (as `kubectl get nodes,pods -A -o yaml` prints them), no cluster needed:
      extender serve --cluster cluster.yaml --log-format text

    Every option may also stand in the file of --config (--body-limit as bodyLimit) or in the environment
    (EXTENDER_BODY_LIMIT); options win over the environment, the environment over the file.
    """
    settings = settings_from(config, flags)
    from extender.app import serve as wiring  # --help, and a fault in the settings, need not wait for NumPy

    wiring.serve(settings)


cli.add_command(explain)
cli.add_command(reference)
cli.add_command(schedule)
cli.add_command(status)


def settings_from(config: Path | None, flags: dict[str, Any]) -> Settings:
    """The settings of a command with `settings_options`. Raises ConfigurationError."""
    return load(config, os.environ, {name: value for name, value in flags.items() if value not in (None, ())})


def main() -> None:
    """The console script: one line for each error; exit status 2 for wrong usage or settings, 1 for other failures."""
    try:
        cli()
    except ConfigurationError as error:
        _fail(error.faults, USAGE_ERROR)
    except (ExtenderError, OSError) as error:
        _fail([str(error)], FAILURE)


def _fail(messages: tuple[str, ...] | list[str], status: int) -> None:
    for message in messages:
        click.echo(f"error: {message}", err=True)
    sys.exit(status)
