"""The command `extender serve`: the webhook. Its flags are made of the table of settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from extender.config.settings import OPTIONS, Option
from extender.config.sources import load

_Command = TypeVar("_Command", bound=Callable[..., Any])


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


@click.command()
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
    settings = load(config, os.environ, {name: value for name, value in flags.items() if value not in (None, ())})
    from extender.app.serve import serve as run  # --help, and a fault in the settings, need not wait for NumPy

    run(settings)
